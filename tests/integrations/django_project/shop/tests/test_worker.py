"""A worker in this process: its threads have connections of their own, and close them."""

import time

from django.test import TransactionTestCase

from shop import jobs
from shop.models import Order
from tickwork import RunStatus
from tickwork.integrations.django import app


class WorkerTest(TransactionTestCase):
    def setUp(self):
        Order.objects.create(item="book")

    def test_functions_and_coroutines(self):
        runs = [jobs.count_orders.dispatch(), jobs.count_orders_async.dispatch()]
        runs += [jobs.block_in_sync_code.dispatch(seconds=0)]
        with app.running(threads=2):
            self.assertEqual([run.result(timeout="30s") for run in runs], [1, 1, 1])

    def test_a_handler_dispatches_in_its_own_transaction(self):
        kept = jobs.order_and_ship.dispatch(item="pen")
        failing = jobs.order_and_ship.dispatch(item="ink", fail=True)
        with app.running(threads=2):
            self.assertIs(kept.wait(timeout="30s"), RunStatus.COMPLETED)
            self.assertIs(failing.wait(timeout="30s"), RunStatus.FAILED_PERMANENT)
            wait_until(lambda: Order.objects.filter(state="shipped").exists())

        self.assertEqual(
            sorted((run.job, run.status.value) for run in app.runs.recent()),
            [
                ("order_and_ship", "completed"),
                ("order_and_ship", "failed_permanent"),
                ("ship", "completed"),
            ],
        )

    def test_a_handler_finishes_its_run_in_its_own_transaction(self):
        run = jobs.order_once.dispatch(item="pen")
        with app.running(threads=1):
            self.assertIs(run.wait(timeout="30s"), RunStatus.COMPLETED)
        self.assertTrue(Order.objects.filter(item="pen").exists())

    def test_synchronous_code_of_coroutines_runs_in_threads_of_their_own(self):
        runs = [jobs.block_in_sync_code.dispatch(seconds=0.5) for _ in range(6)]
        began_at = time.monotonic()
        with app.running(threads=2):
            for run in runs:
                run.result(timeout="30s")

            self.assertLess(time.monotonic() - began_at, 6 * 0.5)


def wait_until(is_true):
    deadline = time.monotonic() + 30
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.02)
