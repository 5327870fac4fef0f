"""The command, the migrations and the system checks."""

import io
from contextlib import redirect_stdout

from django.core.management import call_command
from django.db import connection
from django.test import TestCase, TransactionTestCase, override_settings

from shop import jobs
from tickwork.integrations.django import app


def output_of(*command, **options):
    printed = io.StringIO()
    with redirect_stdout(printed):
        call_command(*command, **options)
    return printed.getvalue()


class CommandTest(TestCase):
    def test_status(self):
        jobs.count_orders.dispatch()

        self.assertIn("count_orders", output_of("tickwork", "status"))

    def test_jobs_are_found(self):
        self.assertLessEqual({"ship", "count_orders", "charge"}, set(app.registry.job_names()))

    def test_the_time_zone_is_that_of_the_project(self):
        self.assertEqual(app.settings.timezone, "Europe/Berlin")

    def test_no_migration_is_missing(self):
        call_command("makemigrations", check=True, dry_run=True, verbosity=0)

    def test_checks(self):
        call_command("check", verbosity=0)
        for wrong in ({"DATABASE": "unknown"}, {"DATABSE": "default"}):
            with override_settings(TICKWORK=wrong), self.assertRaises(SystemExit) as raised:
                try:
                    call_command("check")
                except Exception as error:
                    self.assertIn("TICKWORK", str(error))
                    raise SystemExit from error
            self.assertIsNotNone(raised.exception)


class MigrationTest(TransactionTestCase):
    def tables(self):
        return [
            name
            for name in connection.introspection.table_names(include_views=True)
            if name.startswith("tickwork_")
        ]

    def test_sqlmigrate_shows_the_statements(self):
        shown = output_of("sqlmigrate", "tickwork", "0001")

        self.assertIn("CREATE TABLE tickwork_run", shown)

    def test_backwards_and_forwards(self):
        call_command("migrate", "tickwork", "0002", verbosity=0)
        self.assertIn("tickwork_run", self.tables())
        call_command("migrate", "tickwork", "zero", verbosity=0)
        self.assertEqual(self.tables(), [])
        call_command("migrate", "tickwork", verbosity=0)
        self.assertEqual(jobs.count_orders.dispatch().is_new, True)
        self.assertEqual(app.run(), 1)
        app.close()
