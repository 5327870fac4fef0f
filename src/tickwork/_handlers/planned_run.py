"""A run that is planned: a job with its arguments, not dispatched yet."""

from collections.abc import Callable, Mapping
from typing import Any, Generic, ParamSpec, TypeVar

from tickwork.errors import FlowError

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class PlannedRun(Generic[R_co]):
    """A job and its arguments, for ``ctx.call``, ``ctx.gather`` and ``ctx.then``.

    ``job.plan(...)`` makes it. Nothing is checked or stored before it is used.
    """

    __slots__ = ("args", "job", "kwargs", "name")

    def __init__(
        self, job: object, args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str = ""
    ) -> None:
        self.job = job
        self.args = args
        self.kwargs = kwargs
        self.name = name

    def __repr__(self) -> str:
        return f"<planned run of {self.job}>"

    def call_directly(self, method: str) -> Any:
        """Call the handler, without a run."""
        if not callable(self.job):
            raise FlowError(
                f"ctx.{method}() needs a run, or a job that can be called.",
                why="The job was called directly, and what it calls is no function.",
                fix="Pass the job itself. In a test, use testing.app() and testing.drain(app).",
            )
        return self.job(*self.args, **self.kwargs)


class NamedJob(Generic[P, R]):
    """A job under a name, which tells two calls of it in one run apart."""

    __slots__ = ("_name", "_plan")

    def __init__(self, plan: Callable[P, PlannedRun[R]], name: str) -> None:
        self._plan = plan
        self._name = name

    def plan(self, *args: P.args, **kwargs: P.kwargs) -> PlannedRun[R]:
        """Plan a run with these arguments of the handler."""
        planned = self._plan(*args, **kwargs)
        planned.name = self._name
        return planned


def plan_call(job: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> PlannedRun[Any]:
    """Plan a run of a job, of a draft, or of a job that is given by its name."""
    plan = getattr(job, "plan", None)
    planned: PlannedRun[Any] = (
        PlannedRun(job, args, kwargs) if plan is None else plan(*args, **kwargs)
    )
    return planned
