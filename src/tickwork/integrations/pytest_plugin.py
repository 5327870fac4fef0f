"""Fixtures for pytest, which loads this plugin by itself.

The rest of tickwork is loaded when a test uses one of the fixtures.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

if TYPE_CHECKING:
    from tickwork.app.tickwork import Tickwork
    from tickwork.testing import ManualClock

Swap: TypeAlias = "Callable[[Tickwork], Tickwork]"

_OPTIONS = ("start", "immediately", "raising")
_MARKER = (
    "tickwork(start=None, immediately=False, raising=False): the start time of the test's clock, "
    "whether each run is executed at its dispatch, and whether its exceptions are raised there."
)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture
def tickwork_clock(request: pytest.FixtureRequest) -> "ManualClock":
    """A clock that stands still until the test moves it.

    It starts at the beginning of 2026, or at ``@pytest.mark.tickwork(start="…")``.
    """
    from tickwork._kernel.instants import as_instant  # noqa: PLC0415  # when a test needs it
    from tickwork.testing import ManualClock  # noqa: PLC0415

    start = _option(request, "start")
    return ManualClock() if start is None else ManualClock(as_instant(start, option="start"))


@pytest.fixture
def tickwork_swap(request: pytest.FixtureRequest, tickwork_clock: "ManualClock") -> Iterator[Swap]:
    """A function that puts an application of yours into memory until the test ends.

    It returns the application, which runs on ``tickwork_clock``. To do so for all tests,
    override ``tickwork_app`` in conftest.py::

        @pytest.fixture
        def tickwork_app(tickwork_swap):
            return tickwork_swap(shop.app)
    """
    from tickwork.testing import swap  # noqa: PLC0415

    with ExitStack() as swapped:

        def put(app: "Tickwork") -> "Tickwork":
            swapped.enter_context(swap(app, clock=tickwork_clock))
            return _at_once(request, app, swapped)

        yield put


@pytest.fixture
def tickwork_app(
    request: pytest.FixtureRequest, tickwork_clock: "ManualClock"
) -> Iterator["Tickwork"]:
    """An empty application in memory, on ``tickwork_clock``."""
    from tickwork import testing  # noqa: PLC0415

    module = getattr(request.node, "module", None)  # a doctest has none
    package = "__main__" if module is None else module.__name__.partition(".")[0]
    with ExitStack() as opened:
        app = testing.app(clock=tickwork_clock, handler_paths=[package])
        yield _at_once(request, opened.enter_context(app), opened)


def _at_once(request: pytest.FixtureRequest, app: "Tickwork", stack: ExitStack) -> "Tickwork":
    raising = bool(_option(request, "raising"))
    if raising or _option(request, "immediately"):
        from tickwork.testing import immediately  # noqa: PLC0415

        stack.enter_context(immediately(app, raising=raising))
    return app


def _option(request: pytest.FixtureRequest, name: str) -> Any:
    marker = request.node.get_closest_marker("tickwork")
    if marker is None:
        return None
    unknown = sorted(marker.kwargs.keys() - _OPTIONS)
    if marker.args or unknown:
        what = f"it takes no {unknown[0]!r}" if unknown else "it takes no positional arguments"
        raise pytest.UsageError(f"@pytest.mark.tickwork: {what}, only {', '.join(_OPTIONS)}.")
    return marker.kwargs.get(name)
