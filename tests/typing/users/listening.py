"""Events, handlers of job types and contexts, for type checkers."""

from typing import assert_type

from tickwork import RunContext, Tickwork, current_run
from tickwork.events import Event, RunFailed, RunSucceeded

app = Tickwork("memory://")


@app.on(RunFailed)
def on_failure(event: RunFailed) -> None:
    assert_type(event.error, str)
    assert_type(event.attempt, int)


@app.on(Event)
def on_anything(event: Event) -> None:
    assert_type(event, Event)


@app.on(RunSucceeded)
def broader_is_fine(event: Event) -> str:
    return "heard"


@app.on(RunFailed)  # expect: arg-type
def narrower_is_not(event: RunSucceeded) -> None: ...


assert_type(broader_is_fine(RunSucceeded.__new__(RunSucceeded)), str)


class Printer:
    def supports(self, job_type: str) -> bool:
        return job_type.startswith("print")

    def handle(self, run: RunContext) -> None:
        assert_type(run.run_id + "", str)
        assert_type(run.is_canceled(), bool)
        run.complete(connection=None, result=1)


assert_type(app.handler(Printer()), Printer)
assert_type(current_run(), RunContext | None)
