"""Coroutines in a TestCase: they take part in the transaction of the test."""

import django
from asgiref.sync import async_to_sync
from django.core.exceptions import SynchronousOnlyOperation
from django.db import transaction
from django.test import TestCase, TransactionTestCase

from shop import jobs, tasks
from shop.models import Order
from tickwork import RunStatus, testing
from tickwork.errors import NotCommitted, RunNotFound
from tickwork.integrations.django import app


class AsyncTest(TestCase):
    async def test_one(self):
        self.assertEqual(await testing.aio.dispatched(app), [])
        order = await Order.objects.acreate(item="book")
        run = await jobs.ship.aio.dispatch(order_id=order.pk)

        [attempt] = await testing.aio.drain(app)
        self.assertEqual(attempt.result, "book")
        self.assertEqual(await run.aio.result(), "book")
        self.assertEqual((await Order.objects.aget()).state, "shipped")

    test_the_next_test_begins_without_runs = test_one

    async def test_a_coroutine_handler_sees_the_transaction(self):
        await Order.objects.acreate(item="book")
        run = await jobs.count_orders_async.aio.dispatch()
        other = await jobs.block_in_sync_code.aio.dispatch(seconds=0)

        await testing.aio.drain(app)
        self.assertEqual((await run.aio.result(), await other.aio.result()), (1, 1))

    async def test_a_task_that_is_enqueued_and_drained_is_finished(self):
        result = await tasks.add.aenqueue(20, other=22)
        other = await tasks.add_async.aenqueue(1, 2)

        await testing.aio.drain(app)
        await result.arefresh()
        await other.arefresh()
        self.assertEqual((result.return_value, other.return_value), ({"sum": 42}, 3))

    async def test_single_passes(self):
        run = await jobs.count_orders.aio.dispatch()
        self.assertEqual(await app.aio.run(), 1)
        self.assertIs(await run.aio.status(), RunStatus.COMPLETED)
        run = await jobs.count_orders.delay("1h").aio.dispatch()
        self.assertIs(await (await app.aio.execute(run.id)).aio.status(), RunStatus.COMPLETED)

    async def test_many_and_cancel(self):
        runs = await jobs.ship.aio.dispatch_many([{"order_id": 1}, {"order_id": 2}])
        self.assertTrue(await runs[0].aio.cancel())
        await testing.aio.assert_dispatched(app, "ship", times=2)

    async def test_a_wait_that_cannot_end_is_refused(self):
        run = await jobs.count_orders.aio.dispatch()

        with self.assertRaises(NotCommitted):
            await run.aio.result()

    async def test_a_lock_is_released(self):
        for _ in range(2):
            async with app.aio.lock("import"):
                self.assertEqual(len(await app.aio.pauses()), 0)

    async def test_in_memory(self):
        with testing.swap(app):
            await jobs.count_orders_async.aio.dispatch()
            await jobs.count_orders.aio.dispatch()
            self.assertEqual((await testing.aio.drain(app)).failures, ())

    if django.VERSION >= (5, 2):  # before, Django replaces no method of all connections

        async def test_a_call_that_blocks_is_refused(self):
            with self.assertRaisesRegex(SynchronousOnlyOperation, r"job\.aio\.dispatch"):
                jobs.count_orders.dispatch()


class ImmediatelyTest(TestCase):
    def setUp(self):
        immediately = testing.immediately(app)
        immediately.__enter__()
        self.addCleanup(immediately.__exit__, None, None, None)

    async def test_runs_at_their_dispatch(self):
        await Order.objects.acreate(item="book")
        for job in (jobs.count_orders, jobs.count_orders_async):
            run = await job.aio.dispatch()
            self.assertEqual(await run.aio.result(), 1)


class AsyncCallerTest(TransactionTestCase):
    def test_a_coroutine_takes_part_in_the_transaction_of_its_caller(self):
        with transaction.atomic():
            run = async_to_sync(jobs.count_orders.aio.dispatch)()
            transaction.set_rollback(True)

        with self.assertRaises(RunNotFound):
            app.get_run(run.id).read()

    async def test_without_a_transaction_runs_are_committed(self):
        run = await jobs.count_orders_async.aio.dispatch()

        self.assertEqual(len(await testing.aio.drain(app)), 1)
        self.assertEqual(await run.aio.result("30s"), 0)
