"""The dashboard in the project: users, roles, and what a click changes."""

from django.conf import settings
from django.contrib.auth.models import Permission, User
from django.test import Client, TransactionTestCase, override_settings
from project.asgi import application
from starlette.testclient import TestClient

from shop import jobs
from tickwork.dashboard import User as DashboardUser
from tickwork.dashboard.access import Caller, TokenTable
from tickwork.integrations.django import app

HTML = {"Accept": "text/html"}


class DashboardTest(TransactionTestCase):
    def setUp(self):
        self.users = {"boss": User.objects.create_superuser("boss")}
        for name, verbs in (("reader", "view"), ("operator", "view change"), ("outsider", "")):
            user = self.users[name] = User.objects.create_user(name)
            codes = [f"{verb}_{row}entry" for verb in verbs.split() for row in ("run", "schedule")]
            user.user_permissions.add(*Permission.objects.filter(codename__in=codes))

    def open_as(self, name=None):
        """A browser; with a name, that of a user who has logged in to the project."""
        browser = TestClient(application, base_url="http://shop.example.org", headers=HTML)
        browser.follow_redirects = False
        self.addCleanup(browser.close)
        if name is not None:
            client = Client()
            client.force_login(self.users[name])
            browser.cookies.set("sessionid", client.cookies["sessionid"].value)
        return browser

    def pause(self, browser, name):
        # Each process of a server accepts the forms of the others.
        caller = Caller(DashboardUser(name=name), "")
        csrf = TokenTable((), settings.SECRET_KEY).csrf_token_of(caller)
        return browser.post("/jobs/queues/default/pause", data={"csrf": csrf, "next": "/queues"})

    def test_other_paths_belong_to_the_project(self):
        browser = self.open_as()

        self.assertIn("Log in", browser.get("/admin/login/").text)
        self.assertEqual(browser.get("/jobsearch").status_code, 404)
        self.assertEqual(browser.get("/jobs").headers["location"], "/jobs/")

    def test_one_who_has_not_logged_in_is_sent_to_the_login_of_the_project(self):
        answer = self.open_as().get("/jobs/runs?queue=mail")

        self.assertEqual(answer.status_code, 303)
        self.assertEqual(answer.headers["location"], "/admin/login/?next=/jobs/runs%3Fqueue%3Dmail")
        self.assertEqual(self.open_as().get("/jobs/api/v1/runs").status_code, 401)

    def test_permissions_become_roles(self):
        jobs.count_orders.queue("mail").dispatch()  # a pause needs a queue that exists
        for name, status in (("reader", 403), ("operator", 303), ("boss", 303)):
            with self.subTest(name):
                browser = self.open_as(name)
                page = browser.get("/jobs/queues")
                self.assertEqual(page.status_code, 200)
                self.assertIn(name, page.text)
                answer = self.pause(browser, name)
                self.assertEqual(answer.status_code, status, answer.text)
                self.assertEqual("needs the role operator" in answer.text, name == "reader")
                self.assertEqual(
                    [each.name for each in app.pauses()], ["default"] if status == 303 else []
                )
                app.resume(queue="default")
        self.assertEqual({entry.actor for entry in app.audit.list()}, {"operator", "boss"})

    def test_a_user_without_permissions_sees_why(self):
        page = self.open_as("outsider").get("/jobs/")

        self.assertEqual(page.status_code, 403)
        self.assertIn("tickwork.view_runentry", page.text)

    def test_a_session_that_ended_does_not_count(self):
        browser = self.open_as("boss")
        self.users["boss"].set_password("another one")
        self.users["boss"].save()

        self.assertEqual(browser.get("/jobs/").status_code, 303)
        browser.cookies.set("sessionid", "forged")
        self.assertEqual(browser.get("/jobs/").status_code, 303)

    def test_a_session_with_an_old_secret_key_stays_as_it_is(self):
        browser = self.open_as("boss")

        with override_settings(SECRET_KEY="new", SECRET_KEY_FALLBACKS=["only for tests"]):
            self.assertEqual(browser.get("/jobs/").status_code, 200)
            self.assertEqual(browser.get("/jobs/").status_code, 200)
