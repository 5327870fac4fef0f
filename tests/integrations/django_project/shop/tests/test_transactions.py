"""A dispatch takes part in the ORM's transaction."""

import base64
import threading

from django.db import IntegrityError, connection, connections, transaction
from django.db.transaction import TransactionManagementError
from django.test import Client, TransactionTestCase

from shop.jobs import count_orders, ship
from shop.models import Order
from tickwork import RunStatus, Tickwork, events
from tickwork.errors import NotCommitted, RunNotFound
from tickwork.integrations.django import app
from tickwork.integrations.django.store import DjangoStore


class Undo(Exception):
    pass


class Reversed:
    """Encrypts nothing, but the plain text is not in what it returns."""

    def encrypt(self, data):
        return base64.b64encode(data)[::-1]

    def decrypt(self, token):
        return base64.b64decode(token[::-1])


def visible_ids():
    """The ids of the runs that another connection sees."""
    found = []

    def read():
        found.extend(run.id for run in app.runs.recent())
        connections.close_all()

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    return found


class DispatchTest(TransactionTestCase):
    def test_without_a_transaction_a_run_exists_at_once(self):
        run = count_orders.dispatch()

        self.assertEqual(visible_ids(), [run.id])

    def test_a_commit_adds_the_run(self):
        with transaction.atomic():
            order = Order.objects.create(item="book")
            run = ship.dispatch(order_id=order.pk)
            self.assertEqual(visible_ids(), [])
            self.assertIs(run.status, RunStatus.PENDING)

        self.assertEqual(visible_ids(), [run.id])
        self.assertEqual(app.run(), 1)
        self.assertEqual(run.result(), "book")

    def test_a_rollback_means_not_dispatched(self):
        with self.assertRaises(Undo), transaction.atomic():
            Order.objects.create(item="book")
            run = count_orders.dispatch()
            raise Undo

        self.assertEqual(visible_ids(), [])
        with self.assertRaises(NotCommitted):
            run.read()
        self.assertEqual(app.run(), 0)

    def test_a_nested_block_that_rolls_back_takes_only_its_own_runs(self):
        with transaction.atomic():
            outer = count_orders.dispatch()
            with self.assertRaises(Undo), transaction.atomic():
                count_orders.dispatch()
                raise Undo
            with transaction.atomic():
                inner = count_orders.dispatch()

        self.assertEqual(set(visible_ids()), {outer.id, inner.id})

    def test_many_runs_and_options(self):
        with transaction.atomic():
            count_orders.queue("slow").delay("1h").dispatch_many([{}, {}])
            transaction.set_rollback(True)
        self.assertEqual(visible_ids(), [])
        with transaction.atomic():
            count_orders.queue("slow").delay("1h").dispatch_many([{}, {}])
        self.assertEqual(len(visible_ids()), 2)

    def test_a_connection_can_be_named(self):
        for named in (connection, connections["default"]):
            with transaction.atomic():
                run = count_orders.using(named).dispatch()
                transaction.set_rollback(True)
            with self.assertRaises(RunNotFound):
                run.read()
            with transaction.atomic():
                run = count_orders.using(named).dispatch()
            self.assertIn(run.id, visible_ids())
        connection.close()
        self.assertTrue(count_orders.using(connection).dispatch().id)

    def test_a_transaction_that_must_roll_back_refuses_a_dispatch(self):
        Order.objects.create(item="book")
        with transaction.atomic():
            try:
                with transaction.atomic(savepoint=False):
                    Order.objects.create(item="book")
            except IntegrityError:
                pass
            with self.assertRaises(TransactionManagementError):
                count_orders.dispatch()

        self.assertEqual(visible_ids(), [])

    def test_without_autocommit(self):
        transaction.set_autocommit(False)
        try:
            count_orders.dispatch()
            transaction.rollback()
            run = count_orders.dispatch()
            transaction.commit()
        finally:
            transaction.set_autocommit(True)

        self.assertEqual(visible_ids(), [run.id])

    def test_other_methods_take_part_too(self):
        run = count_orders.delay("1h").dispatch()
        with transaction.atomic():
            run.cancel()
            self.assertIs(run.status, RunStatus.CANCELED)
            again = run.retry()
            app.schedules.pause("nightly") if app.schedules.list() else None
            transaction.set_rollback(True)

        self.assertIs(run.status, RunStatus.PENDING)
        with self.assertRaises(RunNotFound):
            app.get_run(again.id).read()

    def test_payloads_are_encrypted_in_a_transaction_and_outside(self):
        other = Tickwork(
            "django://default",
            install=False,
            store=DjangoStore("default").as_store(),
            encrypt=Reversed(),
        )

        @other.job
        def charge(card: str) -> None: ...

        with transaction.atomic():
            first = charge.dispatch(card="plain-4711")
        second = charge.dispatch(card="plain-4711")

        with connection.cursor() as cursor:
            cursor.execute("SELECT args FROM tickwork_run")
            rows = cursor.fetchall()
        self.assertEqual(len(rows), 2)
        self.assertNotIn("plain-4711", repr(rows))
        for run in (first, second):
            self.assertIn("plain-4711", other.get_run(run.id).read().args)
        other.close()

    def test_waiting_for_a_run_of_the_open_transaction_is_refused(self):
        with transaction.atomic():
            run = count_orders.dispatch()
            with self.assertRaises(NotCommitted):
                run.wait(timeout="5s")
            with self.assertRaises(NotCommitted):
                run.result(timeout="5s")

    def test_no_event_before_the_commit(self):
        seen = []
        app.on(events.RunDispatched)(seen.append)
        count_orders.dispatch()
        with transaction.atomic():
            count_orders.dispatch()

        self.assertEqual(len(seen), 1)

    def test_a_view_that_fails_dispatches_nothing(self):
        client = Client(raise_request_exception=False)

        self.assertEqual(client.post("/orders/", {"item": "book"}).status_code, 200)
        self.assertEqual(client.post("/orders/", {"item": "pen", "fail": 1}).status_code, 500)
        self.assertEqual(len(visible_ids()), 1)
        self.assertEqual([order.item for order in Order.objects.all()], ["book"])


class AsyncViewTest(TransactionTestCase):
    async def test_a_coroutine_dispatches(self):
        answer = await self.async_client.post("/orders/async/", {"item": "book"})

        self.assertEqual(answer.status_code, 200)
        run = await app.aio.get_run(answer.content.decode())
        self.assertIs(await run.aio.status(), RunStatus.PENDING)


class FlushTest(TransactionTestCase):
    """Each test begins without the runs of the one before."""

    def test_one(self):
        self.assertEqual(app.runs.recent(), [])
        count_orders.dispatch()
        self.assertEqual(app.run(), 1)
        self.assertEqual(len(app.schedules.list()), 1)

    test_two = test_one
