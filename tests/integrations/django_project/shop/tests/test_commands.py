"""The command, the migrations and the system checks."""

import io
from contextlib import redirect_stdout

import click
from django.core.management import call_command
from django.db import connection
from django.test import TestCase, TransactionTestCase, override_settings

from shop import jobs
from tickwork.errors import JobNotFound, SchemaMissing
from tickwork.integrations.django import app
from tickwork.integrations.django.management.commands.tickwork import Command


def output_of(*command, **options):
    printed = io.StringIO()
    with redirect_stdout(printed):
        call_command(*command, **options)
    return printed.getvalue()


def help_of(*command):
    group = app.cli()
    found = group.get_command(click.Context(group), command[0]) if command else group
    return found.get_help(click.Context(found))


class CommandTest(TestCase):
    def test_status(self):
        jobs.count_orders.dispatch()

        self.assertIn("count_orders", output_of("tickwork", "status"))

    def test_messages_name_commands_of_the_project(self):
        run = jobs.count_orders.dispatch()

        [cause] = app.explain(run.id).causes
        self.assertEqual(cause.fix, "Start one: python manage.py tickwork work")
        self.assertIn("`python manage.py migrate`", str(SchemaMissing("django://default")))
        self.assertNotIn("install=True", str(SchemaMissing("django://default")))
        self.assertIn("python manage.py tickwork runs", help_of("runs"))
        self.assertNotIn("tickwork init", help_of())
        self.assertNotIn("tickwork -a", help_of("work"))
        with self.assertRaisesRegex(JobNotFound, r"Define it in jobs\.py of an app"):
            app.dispatch("unknown")

    def test_the_usage_is_the_command_of_the_project(self):
        with self.assertRaises(SystemExit):
            printed = io.StringIO()
            with redirect_stdout(printed):
                Command().run_from_argv(["manage.py", "tickwork", "work", "--help"])
        self.assertIn("Usage: python manage.py tickwork work [OPTIONS]", printed.getvalue())

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
        self.assertIn("tickwork_run", self.tables())
        call_command("migrate", "tickwork", "zero", verbosity=0)
        self.assertEqual(self.tables(), [])
        call_command("migrate", "tickwork", verbosity=0)
        self.assertEqual(jobs.count_orders.dispatch().is_new, True)
        self.assertEqual(app.run(), 1)
        app.close()
