"""Tests without a database: what Django refuses there, tickwork refuses, too."""

from django.test import SimpleTestCase

from shop import jobs, tasks
from tickwork import testing
from tickwork.errors import DatabaseNotAllowed
from tickwork.integrations.django import app


class AccessTest(SimpleTestCase):
    def test_nothing_reaches_the_database(self):
        for call in (
            jobs.count_orders.dispatch,
            lambda: tasks.add.enqueue(1),
            lambda: testing.drain(app),
            app.runs.recent,
            app.check_health,
            app.start,
        ):
            with self.assertRaisesRegex(DatabaseNotAllowed, r'databases = {"default"}'):
                call()

    async def test_no_coroutine_reaches_the_database(self):
        with self.assertRaises(DatabaseNotAllowed):
            await jobs.count_orders.aio.dispatch()
        with self.assertRaises(DatabaseNotAllowed):
            await testing.aio.drain(app)

    def test_memory_is_allowed(self):
        with testing.swap(app):
            jobs.describe_box.dispatch(item="book")
            [attempt] = testing.drain(app)
        self.assertEqual(attempt.result, "a box with a book")


class DeclaredTest(SimpleTestCase):
    databases = ("default",)

    def test_a_declared_database_is_allowed(self):
        self.assertEqual(app.runs.recent(limit=1), [])
