"""The admin's pages, and what their actions change in the database."""

from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import TestCase

from shop import jobs
from tickwork import RunStatus, testing
from tickwork.integrations.django import app

RUNS = "/admin/tickwork/runentry/"
SCHEDULES = "/admin/tickwork/scheduleentry/"


class AdminTest(TestCase):
    @classmethod
    def setUpTestData(cls):
        cls.boss = User.objects.create_superuser("boss")
        cls.reader = User.objects.create_user("reader", is_staff=True)
        cls.reader.user_permissions.add(
            *Permission.objects.filter(codename__in=["view_runentry", "view_scheduleentry"])
        )
        cls.outsider = User.objects.create_user("outsider", is_staff=True)

    def setUp(self):
        self.client.force_login(self.boss)
        testing.drain(app)  # the schedules of the project are stored

    def act(self, page, action, *ids, **fields):
        data = {"action": action, "_selected_action": ids, **fields}
        return self.client.post(page, data, follow=True)

    def schedule_id(self, name):
        with connection.cursor() as cursor:
            cursor.execute("SELECT id FROM tickwork_schedule WHERE name = %s", [name])
            return str(cursor.fetchone()[0])

    def paused(self, name):
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT paused_at, pause_note FROM tickwork_schedule WHERE name = %s", [name]
            )
            return cursor.fetchone()

    # ------------------------------------------------------------ runs

    def test_lists_runs(self):
        runs = [jobs.count_orders.dispatch(), jobs.charge.dispatch(card="1", token="t")]
        testing.drain(app)

        page = self.client.get(RUNS)
        self.assertContains(page, "2 runs")
        for run in runs:
            self.assertContains(page, run.id[-8:])
        self.assertContains(self.client.get(RUNS, {"status": "completed"}), "1 run")
        self.assertContains(self.client.get(RUNS, {"job": "charge"}), "1 run")
        self.assertContains(self.client.get(RUNS, {"q": runs[0].id}), "1 run")
        self.assertContains(self.client.get(RUNS, {"q": "charge"}), "1 run")
        self.assertContains(self.client.get(RUNS, {"q": "nothing"}), "0 runs")

    def test_a_page_needs_few_queries_and_counts_no_further_than_its_limit(self):
        jobs.count_orders.delay("1h").dispatch_many([{}] * 120)
        with self.assertNumQueries(4):  # session, user, count, rows
            page = self.client.get(RUNS)
        self.assertContains(page, "120 runs")
        self.assertContains(self.client.get(RUNS, {"p": 3}), "120 runs")

    def test_shows_one_run_with_its_secrets_masked(self):
        run = jobs.charge.dispatch(card="4711", token="hunter2")
        testing.drain(app)

        page = self.client.get(f"{RUNS}{run.id}/change/")
        self.assertContains(page, "4711")
        self.assertNotContains(page, "hunter2")
        self.assertContains(page, "was refused")
        self.assertContains(page, "Traceback")
        self.assertNotContains(page, 'name="_save"')

    def test_explains_a_run_that_waits(self):
        run = jobs.count_orders.delay("1h").dispatch()

        page = self.client.get(f"{RUNS}{run.id}/change/")
        self.assertContains(page, "dispatched for a later time")

    def test_an_address_with_a_junk_id_finds_nothing(self):
        for junk in ("junk", "0" * 36, "01a1e382-72fb-71a5-874e-1a6a23fe5af0"):
            page = self.client.get(f"{RUNS}{junk}/change/", follow=True)
            self.assertEqual(page.status_code, 200)
            self.assertContains(page, "exist")
        self.assertEqual(self.client.get(RUNS, {"q": "x" * 36}).status_code, 200)

    def test_retry(self):
        run = jobs.charge.dispatch(card="1", token="t")
        waiting = jobs.count_orders.delay("1h").dispatch()
        testing.drain(app)

        page = self.act(RUNS, "retry", run.id, waiting.id)
        self.assertContains(page, "1 run will run again.")
        self.assertContains(page, "cannot be run again")
        [again] = [each for each in app.runs.recent() if each.retry_of == run.id]
        self.assertIs(again.status, RunStatus.PENDING)
        self.assertEqual(again.job, "charge")

    def test_cancel(self):
        waiting = jobs.count_orders.delay("1h").dispatch()
        finished = jobs.count_orders.dispatch()
        testing.drain(app)

        page = self.act(RUNS, "cancel", waiting.id, finished.id)
        self.assertContains(page, "1 run canceled")
        self.assertContains(page, "1 run had finished.")
        self.assertIs(waiting.status, RunStatus.CANCELED)
        self.assertIn("by boss", waiting.read().reason)
        self.assertIs(finished.status, RunStatus.COMPLETED)

    def test_an_action_on_all_pages_is_refused(self):
        run = jobs.count_orders.delay("1h").dispatch()

        page = self.act(RUNS, "cancel", run.id, select_across="1")
        self.assertContains(page, "Select rows on one page.")
        self.assertIs(run.status, RunStatus.PENDING)

    def test_every_action_is_in_the_audit_log_with_the_user(self):
        runs = [jobs.count_orders.delay("1h").dispatch() for _ in range(2)]
        self.act(RUNS, "cancel", *(run.id for run in runs))
        self.act(RUNS, "retry", runs[0].id)
        self.act(SCHEDULES, "pause", self.schedule_id("nightly"))

        pause, retry, cancel = app.audit.list(limit=3)
        self.assertEqual({each.actor for each in (pause, retry, cancel)}, {"boss"})
        self.assertEqual((pause.action, pause.subject), ("schedule.pause", "schedule/nightly"))
        self.assertEqual((retry.action, retry.subject), ("run.retry", f"run/{runs[0].id}"))
        self.assertEqual(cancel.action, "run.cancel")
        self.assertTrue(cancel.subject.startswith("bulk/"))  # one entry for both
        self.assertIn('"total": 2', cancel.detail)

    # ------------------------------------------------------------ schedules

    def test_lists_schedules(self):
        page = self.client.get(SCHEDULES)
        self.assertContains(page, "nightly")
        self.assertContains(page, "at 03:00 (Europe/Berlin)")
        self.assertContains(page, "1 schedule")
        page = self.client.get(f"{SCHEDULES}{self.schedule_id('nightly')}/change/")
        self.assertContains(page, "at 03:00 (Europe/Berlin)")
        self.assertEqual(self.client.get(f"{SCHEDULES}junk/change/").status_code, 302)

    def test_pause_and_resume(self):
        schedule = self.schedule_id("nightly")

        self.assertContains(self.act(SCHEDULES, "pause", schedule), "1 schedule paused.")
        at, note = self.paused("nightly")
        self.assertIsNotNone(at)
        self.assertEqual(note, "Paused in the admin by boss.")
        page = self.act(SCHEDULES, "pause", schedule)
        self.assertContains(page, "1 schedule was paused already.")
        self.assertContains(self.client.get(SCHEDULES, {"paused": "yes"}), "nightly")
        self.assertContains(self.client.get(SCHEDULES, {"paused": "no"}), "0 schedules")

        self.assertContains(self.act(SCHEDULES, "resume", schedule), "1 schedule resumed.")
        self.assertIsNone(self.paused("nightly")[0])
        page = self.act(SCHEDULES, "resume", schedule)
        self.assertContains(page, "1 schedule was not paused.")

    def test_run_now(self):
        page = self.act(SCHEDULES, "run_now", self.schedule_id("nightly"))

        self.assertContains(page, "1 schedule will run now.")
        [run] = app.runs.recent()
        self.assertEqual((run.job, run.schedule), ("count_orders", "nightly"))
        self.assertEqual(len(testing.drain(app)), 1)

    # ------------------------------------------------------------ permissions

    def test_a_reader_can_only_look(self):
        run = jobs.count_orders.delay("1h").dispatch()
        self.client.force_login(self.reader)

        self.assertNotContains(self.client.get(RUNS), "Cancel selected runs")
        self.act(RUNS, "cancel", run.id)
        self.act(SCHEDULES, "pause", self.schedule_id("nightly"))
        self.assertIs(run.status, RunStatus.PENDING)
        self.assertIsNone(self.paused("nightly")[0])
        self.assertEqual(self.client.get(f"{RUNS}{run.id}/change/").status_code, 200)

    def test_others_see_nothing(self):
        self.client.force_login(self.outsider)
        self.assertEqual(self.client.get(RUNS).status_code, 403)
        self.assertEqual(self.client.get(SCHEDULES).status_code, 403)

    def test_nothing_can_be_added_edited_or_deleted(self):
        run = jobs.count_orders.delay("1h").dispatch()

        self.assertEqual(self.client.get(f"{RUNS}add/").status_code, 403)
        self.assertEqual(self.client.get(f"{RUNS}{run.id}/delete/").status_code, 403)
        answer = self.client.post(f"{RUNS}{run.id}/change/", {"status": "completed"})
        self.assertEqual(answer.status_code, 403)
        self.assertIs(run.status, RunStatus.PENDING)

    # ------------------------------------------------------------ creating and editing

    VALUES = {
        "name": "hourly",
        "tenant": "",
        "job": "count_orders",
        "rule_source": "30 * * * *",
        "timezone": "Europe/Berlin",
        "arguments": "",
        "queue": "",
    }

    def create(self, **values):
        return self.client.post(f"{SCHEDULES}add/", {**self.VALUES, **values}, follow=True)

    def test_a_schedule_is_created(self):
        page = self.client.get(f"{SCHEDULES}add/")
        self.assertContains(page, "Preview the next firings")
        self.assertContains(self.create(), "was added successfully")

        made = app.schedules.get("hourly")
        self.assertEqual((made.job, made.zone, made.queue), ("count_orders", "Europe/Berlin", None))
        self.assertEqual(made.next_due_at.minute, 30)
        page = self.client.get(f"{SCHEDULES}{self.schedule_id('hourly')}/change/")
        self.assertContains(page, "Next firings")
        self.assertContains(page, ":30:00 Europe/Berlin", count=5)

    def test_a_preview_saves_nothing(self):
        page = self.create(rule_source="0 3 29 2 *", _preview="1")

        self.assertContains(page, "02-29 03:00:00", count=5)
        self.assertNotContains(page, "Please correct")
        self.assertEqual([each.name for each in app.schedules.list()], ["nightly"])

    def test_a_schedule_is_edited(self):
        self.create()
        path = f"{SCHEDULES}{self.schedule_id('hourly')}/change/"
        self.assertContains(self.client.get(path), "30 * * * *")
        values = {**self.VALUES, "rule_source": "daily().hours(9)", "queue": "slow"}
        page = self.client.post(path, {**values, "_preview": "1"}, follow=True)
        self.assertContains(page, "09:00:00", count=5)
        self.assertIsNone(app.schedules.get("hourly").queue)

        self.client.post(path, values)
        after = app.schedules.get("hourly")
        self.assertEqual((after.queue, after.rule), ("slow", "at 09:00 (Europe/Berlin)"))

    def test_arguments_are_kept_unless_they_are_given(self):
        self.create(job="describe_box", arguments='{"item": "book"}')
        path = f"{SCHEDULES}{self.schedule_id('hourly')}/change/"
        values = {**self.VALUES, "job": "describe_box", "queue": "slow"}
        self.client.post(path, values)

        app.schedules.run_now("hourly")
        [attempt] = testing.drain(app)
        self.assertEqual(attempt.result, "a box with a book")

    def test_what_is_wrong_is_shown(self):
        self.create()
        for values, text in (
            ({"name": "x", "rule_source": "61 * * * *"}, "61"),
            ({"name": "x", "arguments": "[1]"}, "must be a JSON object"),
            ({"name": "x", "arguments": '{"wrong": 1}'}, "wrong"),
            ({"name": "x", "timezone": "Europe/Berlyn"}, "Europe/Berlyn"),
            ({"name": "x", "job": "unknown"}, "Select a valid choice"),
            ({"rule_source": "0 9 * * *"}, "hourly"),
        ):
            page = self.create(**values)
            self.assertContains(page, "Please correct")
            self.assertContains(page, text)
        self.assertEqual(len(app.schedules.list()), 2)

    def test_what_code_defines_cannot_be_edited(self):
        path = f"{SCHEDULES}{self.schedule_id('nightly')}/change/"

        self.assertNotContains(self.client.get(path), 'name="_save"')
        self.assertEqual(self.client.post(path, self.VALUES).status_code, 403)

    def test_permissions_to_create_and_to_edit(self):
        self.create()
        path = f"{SCHEDULES}{self.schedule_id('hourly')}/change/"
        self.client.force_login(self.reader)

        self.assertEqual(self.client.get(f"{SCHEDULES}add/").status_code, 403)
        self.assertNotContains(self.client.get(path), 'name="_save"')
        self.assertEqual(self.client.post(path, self.VALUES).status_code, 403)
