"""A server ends connections: at most one attempt fails for each of them."""

import threading

from django.db import DatabaseError, connection, transaction
from django.test import TransactionTestCase

from shop import jobs
from shop.models import Order
from tickwork import RunStatus
from tickwork.integrations.django import app


class LostConnectionTest(TransactionTestCase):
    """CONN_MAX_AGE is None: Django keeps connections, and checks none of them."""

    def test_a_killed_backend_costs_one_attempt_at_most(self):
        with app.running(threads=1):
            for _ in range(3):
                pids = {jobs.backend.dispatch().result(timeout="30s") for _ in range(2)}
                for pid in pids:
                    end_backend(pid)
                runs = [jobs.count_orders.dispatch() for _ in range(3)]
                for run in runs:
                    self.assertIs(run.wait(timeout="30s"), RunStatus.COMPLETED)
                lost = sum(run.read().attempt - 1 for run in runs)
                self.assertLessEqual(lost, len(pids))

    def test_coroutines_lose_nothing(self):
        with app.running(threads=1):
            for _ in range(3):
                end_backend(jobs.backend_async.dispatch().result(timeout="30s"))
                self.assertEqual(jobs.count_orders_async.dispatch().result(timeout="30s"), 0)

    def test_single_passes(self):
        run = jobs.backend.dispatch()
        app.run()
        end_backend(run.result())
        runs = [jobs.count_orders.dispatch() for _ in range(3)]
        for _ in range(3):
            app.run()

        self.assertEqual({run.status for run in runs}, {RunStatus.COMPLETED})
        self.assertLessEqual(sum(run.read().attempt - 1 for run in runs), 1)

    def test_a_dispatch_reports_the_loss_to_django(self):
        with self.assertRaises(DatabaseError), transaction.atomic():
            end_backend(jobs.backend())
            jobs.count_orders.dispatch()

        self.assertEqual(Order.objects.count(), 0)  # Django has opened a new connection
        self.assertEqual(app.runs.recent(), [])


def end_backend(pid):
    """End a connection, from another one."""

    def end():
        with connection.cursor() as cursor:
            if connection.vendor == "postgresql":
                cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
            else:
                cursor.execute(f"KILL {int(pid)}")
        connection.close()

    thread = threading.Thread(target=end)
    thread.start()
    thread.join()
