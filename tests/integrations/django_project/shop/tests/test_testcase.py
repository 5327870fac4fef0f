"""TestCase: everything happens in the transaction of the test, and is rolled back."""

from django.db import transaction
from django.test import TestCase

from shop import jobs
from shop.models import Order
from tickwork import RunStatus, testing
from tickwork.integrations.django import app


class DrainTest(TestCase):
    def setUp(self):
        self.assertEqual(app.runs.recent(), [])

    def test_a_view_dispatches_and_the_test_drains(self):
        with self.captureOnCommitCallbacks() as callbacks:
            answer = self.client.post("/orders/", {"item": "book"})
        self.assertEqual(callbacks, [])

        testing.assert_dispatched(app, "ship", times=1)
        [attempt] = testing.drain(app)
        self.assertEqual(attempt.result, "book")
        self.assertEqual(Order.objects.get().state, "shipped")
        self.assertIs(app.get_run(answer.content.decode()).status, RunStatus.COMPLETED)

    def test_a_view_that_fails_dispatches_nothing(self):
        self.client.raise_request_exception = False
        self.client.post("/orders/", {"item": "book", "fail": 1})

        testing.assert_nothing_dispatched(app)

    def test_run_drains_too(self):
        run = jobs.count_orders.dispatch()

        self.assertEqual(app.run(), 1)
        self.assertEqual(run.result(), 0)

    def test_execute(self):
        run = jobs.count_orders.delay("1h").dispatch()

        self.assertIs(app.execute(run.id).status, RunStatus.COMPLETED)

    def test_coroutines_see_the_transaction(self):
        Order.objects.create(item="book")
        run = jobs.count_orders_async.dispatch()
        other = jobs.block_in_sync_code.dispatch(seconds=0)

        self.assertEqual(testing.drain(app).failures, ())
        self.assertEqual((run.result(), other.result()), (1, 1))

    def test_a_failed_statement_does_not_spoil_the_test(self):
        run = jobs.insert_twice.dispatch(item="book")

        [attempt] = testing.drain(app)
        self.assertIn("IntegrityError", attempt.error)
        self.assertIs(run.status, RunStatus.FAILED_PERMANENT)
        self.assertLessEqual(Order.objects.count(), 1)

    def test_a_handler_that_swallows_an_error(self):
        run = jobs.swallow_an_error.dispatch(item="book")

        testing.drain(app)
        self.assertEqual(run.result(), 0)
        self.assertEqual(Order.objects.count(), 0)

    def test_a_dispatch_inside_of_a_handler(self):
        jobs.order_and_ship.dispatch(item="book")
        failing = jobs.order_and_ship.dispatch(item="pen", fail=True)

        testing.drain(app)
        self.assertEqual([order.state for order in Order.objects.all()], ["shipped"])
        self.assertIs(failing.status, RunStatus.FAILED_PERMANENT)
        testing.assert_dispatched(app, "ship", times=1)

    def test_a_job_with_another_engine_runs_here(self):
        Order.objects.create(item="book")
        run = jobs.count_in_child.dispatch()

        testing.drain(app)
        self.assertEqual(run.result()["orders"], 1)

    def test_runs_at_their_dispatch(self):
        with testing.immediately(app):
            order = Order.objects.create(item="book")
            self.assertEqual(jobs.ship.dispatch(order_id=order.pk).result(), "book")
        self.assertEqual(Order.objects.get().state, "shipped")

    def test_in_memory(self):
        with testing.swap(app):
            jobs.count_orders.delay("1h").dispatch()
            self.assertEqual(len(testing.drain(app)), 0)
            self.assertTrue(testing.travel(app, hours=1))
        testing.assert_nothing_dispatched(app)

    def test_isolated_with_a_clock(self):
        from django.db import connection

        clock = testing.ManualClock()
        with testing.isolated(app, connection, clock=clock):
            jobs.count_orders.delay("1h").dispatch()
            self.assertEqual(len(testing.drain(app)), 0)
            testing.travel(app, hours=2)
            self.assertTrue(testing.dispatched(app, "count_orders"))


class SchedulesTest(TestCase):
    """What one test writes is rolled back, and the next one writes it again."""

    def test_one(self):
        self.assertEqual(app.schedules.list(), [])
        testing.drain(app)
        self.assertEqual({each.name for each in app.schedules.list()}, {"nightly"})
        with transaction.atomic():
            app.schedules.run_now("nightly")
        self.assertEqual(len(testing.drain(app)), 1)

    test_two = test_one
