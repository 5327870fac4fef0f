"""``app.alerts``: the targets of an application, and the jobs whose failures it watches."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tickwork._domain.watch import RUNS_DEFAULT, FailureRule
from tickwork.alerts.contract import AlertTarget, FailureWatch
from tickwork.alerts.pinger import Pinger
from tickwork.errors import InvalidOption
from tickwork.events import Event
from tickwork.events.bus import EventBus


class Alerts:
    """``app.alerts``: where alerts and pings of an application go. The log gets all alerts."""

    def __init__(self, bus: EventBus, *, on_stop: Callable[[Callable[[], None]], object]) -> None:
        self._bus = bus
        self._on_stop = on_stop
        self.targets: tuple[AlertTarget, ...] = ()
        self.failure_watches: Mapping[str | None, FailureWatch] = {}

    def add(self, target: AlertTarget) -> None:
        """Send all alerts to this target, too.

        Raises:
            InvalidOption: It has no method ``send``.
        """
        if not callable(getattr(target, "send", None)):
            # Not the value: it may be a URL that is a secret.
            kind = type(target).__name__
            raise InvalidOption(
                "target", kind, "must have the methods of AlertTarget", fix="Use Webhook(url)."
            )
        self.targets = (*self.targets, target)

    def watch_failures(
        self,
        job: str | None = None,
        *,
        in_a_row: int | None = None,
        share: float | None = None,
        runs: int = RUNS_DEFAULT,
        hook: Callable[..., Any] | None = None,
    ) -> None:
        """Raise an alert if so many runs of a job fail in a row, or such a share of them.

        Without ``job`` it applies to every job without a call of its own. ``share`` is that of
        the last ``runs`` finished runs. ``hook`` gets the event ``JobFailing``.

        >>> from tickwork import Tickwork
        >>> app = Tickwork("memory://")
        >>> app.alerts.watch_failures(in_a_row=3)
        >>> app.alerts.watch_failures("import_orders", share=0.2, runs=50)

        Raises:
            InvalidOption: A value is invalid, or there is neither ``in_a_row`` nor ``share``.
        """
        if job is not None and not isinstance(job, str):
            raise InvalidOption("job", job, "must be the name of a job", fix="Use job.name.")
        if hook is not None and not callable(hook):
            raise InvalidOption("hook", hook, "must be a function")
        rule = FailureRule(in_a_row=in_a_row, share=share, runs=runs)
        watch = FailureWatch(rule=rule, hooks=() if hook is None else (hook,))
        self.failure_watches = {**self.failure_watches, job: watch}

    def ping(self, url: str, *, job: str, allow: Sequence[str] = ()) -> None:
        """Ping a URL when runs of this job start (``/start``), succeed and fail (``/fail``).

        ``allow`` lists link-local addresses or networks that may be the target.

        Raises:
            InvalidOption: It is not a URL of HTTP.
        """
        pinger = Pinger(url, job=job, allow=allow)
        self._bus.subscribe(Event, pinger.on_event)
        self._on_stop(pinger.flush)
