"""The page of a run, and its endpoint, show the runs that it has called, and its callers."""

from dashboard.conftest import API
from tickwork import RunContext


def test_children_and_callers(app, admin):
    @app.job
    def label(number: int) -> int:
        return number

    @app.job
    def order(ctx: RunContext) -> list[int]:
        return ctx.gather(label.plan(1), label.delay("1d").plan(2))

    run = order.dispatch()
    app.collect()

    found = admin.get(f"{API}/runs/{run.id}").json()
    assert [(each["step"], each["status"]) for each in found["children"]] == [
        ("gather[0]", "completed"),
        ("gather[1]", "pending"),
    ]
    page = admin.get(f"/runs/{run.id}").text
    assert "Called runs" in page
    for child in found["children"]:
        assert f'href="/runs/{child["id"]}"' in page
        assert admin.get(f"{API}/runs/{child['id']}").json()["callers"] == [run.id]
        assert "Called by" in admin.get(f"/runs/{child['id']}").text
