"""A claim that a worker hands over to a process of another engine, and the message about it."""

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from tickwork._domain.identity import RunId
from tickwork._domain.runs.run import Claim, Run
from tickwork._domain.runs.status import RunStatus
from tickwork.errors import HandoverRejected

MESSAGE_VERSION: Final = 1
RUNS_MAX: Final = 500
"""The most runs of one message."""


class Handover(NamedTuple):
    """One claim that was handed over. Accepting it gives the run a new token.

    So of several processes that get the same message, one accepts the run. The worker that
    handed it over cannot write its outcome after that, and an old message is worth nothing.
    """

    run_id: RunId
    token: int

    @property
    def external_id(self) -> str:
        """The id under which the other engine knows the run."""
        return f"{self.run_id}:{self.token}"


class HandoverState(NamedTuple):
    """Where a run that was handed over is."""

    external_id: str
    is_accepted: bool


def handover_of(claim: Claim) -> Handover:
    return Handover(claim.run_id, claim.token)


def state_of(run: Run) -> HandoverState | None:
    """Return where a running run was handed over to; None if this attempt was not."""
    if run.external_id is None or run.status is not RunStatus.RUNNING:
        return None
    is_accepted = run.external_id != Handover(run.id, run.token).external_id
    return HandoverState(run.external_id, is_accepted)


def encode_message(handovers: Sequence[Handover]) -> dict[str, Any]:
    """Make the message about these runs, of JSON types. It contains no arguments.

    >>> encode_message([Handover(RunId("a"), 1)])
    {'v': 1, 'runs': [['a', 1]]}
    """
    return {"v": MESSAGE_VERSION, "runs": [list(handover) for handover in handovers]}


def decode_message(message: object) -> list[Handover]:
    """Read a message.

    Raises:
        HandoverRejected: Another version of tickwork has written it, or it is no such message.
    """
    if isinstance(message, str):
        try:
            message = json.loads(message)
        except ValueError as error:
            raise HandoverRejected("It is not JSON.") from error
    if not isinstance(message, dict):
        raise HandoverRejected("It is not a JSON object.")
    version = message.get("v")
    if version != MESSAGE_VERSION:
        raise HandoverRejected(
            f"It has version {version!r}, and this process reads version {MESSAGE_VERSION}.",
            fix="Install the same version of tickwork on both sides.",
        )
    runs = message.get("runs")
    if not isinstance(runs, list) or not all(map(_is_handover, runs)):
        raise HandoverRejected("Its runs are no list of ids and tokens.")
    if len(runs) > RUNS_MAX:
        raise HandoverRejected(f"It has {len(runs)} runs; the most are {RUNS_MAX}.")
    return [Handover(RunId(run_id), token) for run_id, token in runs]


def _is_handover(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2  # an id and a token
        and isinstance(value[0], str)
        and isinstance(value[1], int)
        and not isinstance(value[1], bool)
    )
