"""Links that answer a wait of a run, for people who have no account on the dashboard."""

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from tickwork._define.options import Duration
from tickwork._dispatch.runs import Runs
from tickwork._domain.identity import RunId
from tickwork._domain.runs.callback_links import TOKEN_MAX, CallbackLink, read_link, sign_link
from tickwork._domain.runs.run import Run
from tickwork._domain.runs.stored_events import NAME_MAX, EventName
from tickwork._kernel.clock import Clock
from tickwork._kernel.durations import as_duration, later
from tickwork._stores.contract import Store
from tickwork.errors import CallbackRefused, InvalidOption

PATH: Final = "/callbacks/"
"""Where the dashboard answers links."""

ANSWERS_MAX: Final = 10
ANSWER_MAX: Final = 60
"""The longest answer, in characters: it is the text of a button."""


class Callbacks:
    """Makes links, and takes their answers: each link has one answer at most."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        runs: Runs,
        secrets: Sequence[str],
        dashboard_url: str,
    ) -> None:
        self._store = store
        self._clock = clock
        self._runs = runs
        self._secrets = secrets
        self._dashboard_url = dashboard_url

    def url_of(
        self, run_id: RunId, event: str, *, valid: Duration, answers: Sequence[str] = ()
    ) -> str:
        """Make the link that emits an event of a run.

        Raises:
            InvalidOption: A setting is missing, or a value cannot be part of a link.
        """
        if not self._secrets:
            raise InvalidOption(
                "callback_secret",
                None,
                "must be set before ctx.callback_url() can sign a link",
                fix="Pass callback_secret to Tickwork(), or set TICKWORK_CALLBACK_SECRET.",
            )
        if not self._dashboard_url:
            raise InvalidOption(
                "dashboard_url",
                None,
                "must be set before ctx.callback_url() can make a link",
                fix="Write Tickwork(dashboard_url='https://jobs.example.com/ops').",
            )
        _check_text("event", event, NAME_MAX)
        given = (answers,) if isinstance(answers, str) else tuple(answers)
        for each in given:
            _check_text("answers", each, ANSWER_MAX)
        if len(given) > ANSWERS_MAX or len(set(given)) < len(given):
            raise InvalidOption("answers", given, f"must be at most {ANSWERS_MAX} different texts")
        length = as_duration(valid)
        if not length:
            raise InvalidOption("valid", valid, "must be longer than 0s")
        link = CallbackLink(run_id, event, later(self._clock.now(), length), given)
        token = sign_link(link, self._secrets[0])
        if len(token) > TOKEN_MAX:
            raise InvalidOption(
                "answers",
                given,
                "must be shorter",
                fix=f"A link has at most {TOKEN_MAX:,} letters.",
            )
        return f"{self._dashboard_url}{PATH}{token}"

    def read(self, link: str) -> tuple[CallbackLink, Run]:
        """What a link, or the signed text at its end, asks for, and the run that waits.

        Raises:
            CallbackRefused: It is forged or changed, has expired, was used, or the run has ended.
        """
        found = read_link(_token_of(link), self._secrets)
        if found is None:
            raise CallbackRefused("invalid", "This program has not signed it, or it was changed.")
        if found.until <= self._clock.now():
            raise CallbackRefused(
                "expired", f"It was valid until {found.until:%Y-%m-%d %H:%M} UTC."
            )
        run = self._store.get_run(found.run_id)
        if run is None:
            raise CallbackRefused("ended", "The run that waited does not exist any more.")
        if self._store.find_event(EventName(run.tenant, found.event, run.id)) is not None:
            raise CallbackRefused("used", f"{found.event!r} was answered before.")
        if run.is_finished:
            raise CallbackRefused("ended", f"The run does not wait any more: it is {run.status}.")
        return found, run

    def answer(self, link: str, data: Any = None) -> RunId:
        """Emit the event of a link; return the run.

        Raises:
            CallbackRefused: As :meth:`read`; also if another answer came at the same time.
            InvalidOption: The link does not have this answer.
            PayloadError: The data cannot be stored.
        """
        found, run = self.read(link)
        if found.answers and data not in found.answers:
            allowed = ", ".join(map(repr, found.answers))
            raise InvalidOption("answer", data, f"must be one of {allowed}")
        if not self._runs.signal(run.id, found.event, data):
            raise CallbackRefused("used", f"{found.event!r} was answered before.")
        return run.id


def _token_of(link: str) -> str:
    if PATH not in link:
        return link
    try:
        return urlsplit(link).path.rpartition("/")[2]
    except ValueError:
        return ""


def _check_text(option: str, text: object, longest: int) -> None:
    if not (type(text) is str and 0 < len(text) <= longest and text.isprintable()):
        raise InvalidOption(option, text, f"must be a printable text of 1 to {longest} characters")
