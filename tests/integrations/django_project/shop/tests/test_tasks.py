"""The backend for django.tasks."""

from datetime import timedelta

from django.db import transaction
from django.test import TestCase, TransactionTestCase, override_settings
from django.utils import timezone
from django_tasks import TaskResultStatus, default_task_backend, task
from django_tasks.exceptions import InvalidTaskError, TaskResultDoesNotExist, TaskResultMismatch
from django_tasks.signals import task_enqueued, task_finished, task_started

from shop import jobs, tasks
from shop.models import Order
from tickwork import RunStatus, testing
from tickwork.errors import InvalidOption
from tickwork.integrations.django import app
from tickwork.integrations.django.tasks import job_options


def think():
    return 42


def late_task():
    """A task that is made now."""
    return task(think)


class BackendTest(TestCase):
    def test_features(self):
        for feature in ("defer", "async_task", "get_result", "priority"):
            self.assertTrue(getattr(default_task_backend, f"supports_{feature}"))

    def test_enqueue_and_result(self):
        result = tasks.add.enqueue(20, other=22)
        self.assertEqual(result.status, TaskResultStatus.READY)
        self.assertEqual((result.args, result.kwargs), ([20], {"other": 22}))
        self.assertEqual(result.attempts, 0)
        self.assertFalse(result.is_finished)
        self.assertEqual(result.backend, "default")

        testing.drain(app)
        result.refresh()
        self.assertEqual(result.status, TaskResultStatus.SUCCESSFUL)
        self.assertEqual(result.return_value, {"sum": 42})
        self.assertEqual((result.attempts, len(result.worker_ids)), (1, 1))
        self.assertEqual(result.errors, [])
        self.assertLessEqual(result.enqueued_at, result.started_at)
        self.assertLessEqual(result.started_at, result.finished_at)
        self.assertEqual(result.last_attempted_at, result.started_at)

    def test_a_result_by_its_id(self):
        result = tasks.add.enqueue(1)
        found = tasks.add.get_result(result.id)

        self.assertEqual((found.id, found.args), (result.id, [1]))
        self.assertEqual(found.task.queue_name, "mail")
        self.assertEqual(default_task_backend.get_result(result.id).task.func, tasks.add.func)
        with self.assertRaises(TaskResultMismatch):
            tasks.fail.get_result(result.id)
        for unknown in ("junk", "01a1e382-72fb-71a5-874e-1a6a23fe5af0"):
            with self.assertRaises(TaskResultDoesNotExist):
                default_task_backend.get_result(unknown)
        with self.assertRaises(TaskResultDoesNotExist):
            default_task_backend.get_result(jobs.count_orders.dispatch().id)

    def test_the_result_of_enqueue_equals_the_one_of_get_result(self):
        result = tasks.add.using(priority=7).enqueue(20, other=22)

        self.assertEqual(tasks.add.get_result(result.id), result)

    def test_a_task_is_a_job_with_its_own_name_and_options(self):
        run = app.get_run(tasks.succeed_late.enqueue().id).read()
        self.assertEqual((run.job, run.attempts_max), ("shop.tasks.succeed_late", 3))
        testing.drain(app)
        names = {limit.name for limit in app.limits.list()}
        self.assertIn("job:shop.tasks.succeed_late", names)

    def test_a_task_is_retried(self):
        result = tasks.succeed_late.enqueue()
        testing.drain(app)
        result.refresh()

        self.assertEqual((result.return_value, result.attempts), (3, 3))
        self.assertEqual([each.exception_class for each in result.errors], [tasks.NoStock] * 2)

    def test_what_belongs_to_the_task_is_no_option_of_its_job(self):
        with self.assertRaisesRegex(InvalidOption, "belongs to the task"):
            job_options(priority=10)

    def test_options_of_the_backend_are_those_of_its_jobs(self):
        settings = {
            "default": {
                "BACKEND": "tickwork.integrations.django.tasks.TickworkBackend",
                "OPTIONS": {"attempts": 5},
            }
        }
        with override_settings(TASKS=settings):
            result = late_task().enqueue()
            self.assertEqual(app.get_run(result.id).read().attempts_max, 5)

    def test_a_failure(self):
        result = tasks.fail.enqueue("none\nleft")
        testing.drain(app)
        result.refresh()

        self.assertEqual(result.status, TaskResultStatus.FAILED)
        [error] = result.errors
        self.assertIs(error.exception_class, tasks.NoStock)
        self.assertIn("none\nleft", error.traceback)
        with self.assertRaises(ValueError):
            print(result.return_value)
        self.assertEqual(result.attempts, 1)

    def test_priority_queue_and_time(self):
        later = timezone.now() + timedelta(hours=1)
        low = tasks.order.using(priority=-50).enqueue("low")
        high = tasks.order.using(priority=50).enqueue("high")
        deferred = tasks.order.using(run_after=later).enqueue("deferred")
        other = tasks.add.enqueue(1)

        made = testing.drain(app)
        done = [each.run_id for each in made]
        self.assertLess(done.index(high.id), done.index(low.id))
        self.assertNotIn(deferred.id, done)
        self.assertEqual(app.get_run(deferred.id).read().due_at, later)
        self.assertEqual(app.get_run(other.id).read().queue, "mail")
        found = tasks.order.get_result(high.id)
        self.assertEqual(found.task.priority, 50)
        self.assertEqual(tasks.order.get_result(deferred.id).task.run_after, later)

    def test_the_context(self):
        result = tasks.describe.enqueue("word")
        testing.drain(app)
        result.refresh()

        self.assertEqual(result.return_value, [result.id, 1, "word"])

    def test_a_coroutine(self):
        result = tasks.add_async.enqueue(1, other=2)
        testing.drain(app)
        result.refresh()

        self.assertEqual(result.return_value, 3)

    async def test_async_methods(self):
        result = await tasks.add.aenqueue(1)
        found = await tasks.add.aget_result(result.id)

        self.assertEqual(found.status, TaskResultStatus.READY)
        await result.arefresh()

    def test_what_cannot_be_json_is_refused(self):
        with self.assertRaises(TypeError):
            tasks.add.enqueue(object())
        testing.assert_nothing_dispatched(app)
        result = tasks.unserializable.enqueue()
        testing.drain(app)
        result.refresh()
        self.assertEqual(result.status, TaskResultStatus.FAILED)
        self.assertIs(result.errors[0].exception_class, TypeError)
        self.assertIn("Unsupported type", result.errors[0].traceback)

    def test_invalid_tasks(self):
        with self.assertRaises(InvalidTaskError):
            tasks.add.using(queue_name="unknown")
        with self.assertRaises(InvalidTaskError):
            tasks.add.using(priority=101)
        with self.assertRaises(InvalidTaskError):
            tasks.add.using(run_after=timezone.now().replace(tzinfo=None))

    def test_a_canceled_task_has_failed_without_errors(self):
        result = tasks.add.enqueue(1)
        app.get_run(result.id).cancel()
        result.refresh()

        self.assertEqual((result.status, result.errors), (TaskResultStatus.FAILED, []))

    def test_signals(self):
        seen = []

        def note(name):
            def receive(sender, task_result, **_):
                seen.append((name, task_result.status, task_result.attempts))

            return receive

        receivers = []
        for signal, name in (
            (task_enqueued, "enqueued"),
            (task_started, "started"),
            (task_finished, "finished"),
        ):
            receivers.append(note(name))
            signal.connect(receivers[-1])
            self.addCleanup(signal.disconnect, receivers[-1])
        tasks.add.enqueue(1)
        testing.drain(app)
        tasks.fail.enqueue("x")
        testing.drain(app)

        self.assertEqual(
            seen,
            [
                ("enqueued", TaskResultStatus.READY, 0),
                ("started", TaskResultStatus.RUNNING, 1),
                ("finished", TaskResultStatus.SUCCESSFUL, 1),
                ("enqueued", TaskResultStatus.READY, 0),
                ("started", TaskResultStatus.RUNNING, 1),
                ("finished", TaskResultStatus.FAILED, 1),
            ],
        )


class TransactionTest(TransactionTestCase):
    def test_a_task_of_a_transaction_that_rolls_back_does_not_exist(self):
        with transaction.atomic():
            result = tasks.order.enqueue("book")
            self.assertEqual(tasks.order.get_result(result.id).status, TaskResultStatus.READY)
            transaction.set_rollback(True)

        with self.assertRaises(TaskResultDoesNotExist):
            tasks.order.get_result(result.id)
        self.assertEqual(app.run(), 0)

    def test_a_worker_executes_tasks(self):
        results = [tasks.order.enqueue("book"), tasks.add_async.enqueue(1, 2)]
        with app.running(threads=1):
            for result in results:
                self.assertIs(app.get_run(result.id).wait(timeout="30s"), RunStatus.COMPLETED)

        self.assertEqual(Order.objects.get().item, "book")
