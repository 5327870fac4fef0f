"""What tracers store with a run, and several tracers for one application."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager

from tickwork._dispatch.dispatch import DispatchTracer, TracedApp
from tickwork._domain.runs.run import NewRun


class TracerChain:
    """Calls several tracers, each inside of those before it."""

    def __init__(self, *tracers: DispatchTracer) -> None:
        self._tracers = tracers

    def dispatching(self, runs: Sequence[NewRun]) -> AbstractContextManager[Sequence[NewRun]]:
        return self._dispatching(runs)

    @contextmanager
    def _dispatching(self, runs: Sequence[NewRun]) -> Iterator[Sequence[NewRun]]:
        with ExitStack() as stack:
            for tracer in self._tracers:
                runs = stack.enter_context(tracer.dispatching(runs))
            yield runs


def add_tracer(app: TracedApp, tracer: DispatchTracer) -> None:
    """Follow the runs of an application, also if another tracer does."""
    app.tracer = tracer if app.tracer is None else TracerChain(app.tracer, tracer)


def store_headers(runs: Sequence[NewRun], headers: Mapping[str, str]) -> Sequence[NewRun]:
    """Store headers with runs of one dispatch, beside those of another tracer."""
    if not headers:
        return runs
    text = json.dumps({**read_headers(runs[0].trace), **headers}, separators=(",", ":"))
    return [run._replace(trace=text) for run in runs]


def read_headers(stored: str | None) -> dict[str, str]:
    """What a dispatch stored. Another program may have stored something else."""
    try:
        headers = json.loads(stored or "{}")
    except ValueError:
        return {}
    if not isinstance(headers, dict):
        return {}
    return {key: value for key, value in headers.items() if isinstance(value, str)}
