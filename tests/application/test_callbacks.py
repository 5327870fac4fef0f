"""Links that answer ``ctx.wait_for``: ``ctx.callback_url`` makes them."""

from datetime import timedelta
from typing import Any

import pytest

from tickwork import RunContext, Tickwork
from tickwork.errors import CallbackRefused, InvalidOption, PayloadError

SECRET, NEW = "s" * 32, "n" * 32
DASHBOARD = "https://jobs.example.com/ops"
DAY = timedelta(days=1)


@pytest.fixture
def app(make_app):
    return make_app(callback_secret=SECRET, dashboard_url=DASHBOARD)


def define(app: Tickwork, links: list[str], **options: Any) -> Any:
    @app.job(name="order")
    def order(ctx: RunContext) -> Any:
        links.append(ctx.callback_url("approved", **{"valid": "2d", **options}))
        return ctx.wait_for("approved", timeout="7d")

    return order


class TestLinks:
    """A link emits the event of its run, once."""

    def test_an_answer_continues_the_run(self, app, passes):
        links: list[str] = []
        run = define(app, links).dispatch()
        passes(app)
        assert links[0].startswith(f"{DASHBOARD}/callbacks/1.")

        assert app.callbacks.answer(links[0], {"by": "ann"}) == run.id
        passes(app)

        assert run.result() == {"by": "ann"}

    def test_a_link_is_used_once(self, app, passes):
        links: list[str] = []
        run = define(app, links).dispatch()
        passes(app)
        app.callbacks.answer(links[0], 1)

        with pytest.raises(CallbackRefused) as caught:
            app.callbacks.answer(links[0], 2)

        assert caught.value.reason == "used"
        passes(app)
        assert run.result() == 1

    def test_another_answer_of_the_same_moment_is_refused(self, app, passes, monkeypatch):
        links: list[str] = []
        run = define(app, links).dispatch()
        passes(app)
        read = app.callbacks.read

        def read_before_another_answer(link: str) -> Any:
            found = read(link)
            run.signal("approved", "first")
            return found

        monkeypatch.setattr(app.callbacks, "read", read_before_another_answer)
        with pytest.raises(CallbackRefused) as caught:
            app.callbacks.answer(links[0], "second")

        assert caught.value.reason == "used"
        passes(app)
        assert run.result() == "first"

    def test_it_expires(self, app, clock, passes):
        links: list[str] = []
        run = define(app, links).dispatch()
        passes(app)
        clock.advance(2 * DAY)

        with pytest.raises(CallbackRefused, match="valid until") as caught:
            app.callbacks.answer(links[0])

        assert caught.value.reason == "expired"
        assert not run.status.is_final

    @pytest.mark.parametrize("end", ["cancel", "delete"])
    def test_a_run_that_has_ended_waits_for_nothing(self, app, passes, end):
        links: list[str] = []
        run = define(app, links).dispatch()
        passes(app)
        run.cancel()
        if end == "delete":
            app.runs.delete([run.id])

        with pytest.raises(CallbackRefused) as caught:
            app.callbacks.answer(links[0])

        assert caught.value.reason == "ended"

    def test_the_buttons_of_a_link_are_all_that_it_takes(self, app, passes):
        links: list[str] = []
        run = define(app, links, answers=["approve", "reject"]).dispatch()
        passes(app)

        for hostile in (None, "delete", {"approve": 1}, ["approve"]):
            with pytest.raises(InvalidOption, match="one of 'approve', 'reject'"):
                app.callbacks.answer(links[0], hostile)
        app.callbacks.answer(links[0], "reject")
        passes(app)

        assert run.result() == "reject"

    def test_data_that_cannot_be_stored(self, app, passes):
        links: list[str] = []
        define(app, links).dispatch()
        passes(app)

        with pytest.raises(PayloadError):
            app.callbacks.answer(links[0], "x" * 100_000)

    def test_in_a_coroutine(self, app, passes):
        links: list[str] = []

        @app.job
        async def order(ctx: RunContext) -> Any:
            links.append(ctx.callback_url("approved", valid="2d"))
            return await ctx.aio.wait_for("approved", timeout="7d")

        run = order.dispatch()
        passes(app)
        app.callbacks.answer(links[0], 5)
        passes(app)

        assert run.result() == 5


class TestSecrets:
    """The first secret signs; all of them are accepted."""

    def test_a_new_secret_beside_the_old_one(self, make_app, app, passes):
        links: list[str] = []
        define(app, links).dispatch()
        passes(app)
        rotated = make_app(callback_secret=[NEW, SECRET], dashboard_url=DASHBOARD)
        foreign = make_app(callback_secret=NEW, dashboard_url=DASHBOARD)

        with pytest.raises(CallbackRefused) as caught:
            foreign.callbacks.answer(links[0])
        rotated.callbacks.answer(links[0])

        assert caught.value.reason == "invalid"

    @pytest.mark.parametrize(
        ("settings", "missing"),
        [
            ({"dashboard_url": DASHBOARD}, "callback_secret must be set"),
            ({"callback_secret": SECRET}, "dashboard_url must be set"),
        ],
    )
    def test_a_missing_setting(self, make_app, passes, settings, missing):
        app = make_app(**settings)
        run = define(app, []).dispatch()

        passes(app)

        assert run.status.is_final
        assert missing in run.read().reason

    @pytest.mark.parametrize(
        "options",
        [
            {"valid": 0},
            {"valid": "-1d"},
            {"answers": ["a", "a"]},
            {"answers": [""]},
            {"answers": ["a\nb"]},
            {"answers": [str(number) for number in range(11)]},
            {"answers": [5]},
        ],
        ids=str,
    )
    def test_values_that_make_no_link(self, app, passes, options):
        links: list[str] = []
        run = define(app, links, **options).dispatch()

        passes(app)

        assert run.status.is_final
        assert links == []
