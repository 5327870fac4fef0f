"""The one place that opens an attempt: every engine and every process gets its context here."""

from datetime import datetime

from tickwork._define.definition import Definition
from tickwork._domain.runs.run import Claim
from tickwork._handlers.context import AttemptStore, RunContext


def open_attempt(
    definition: Definition, claim: Claim, store: AttemptStore, deadline: datetime | None = None
) -> RunContext:
    """Decode the arguments of a claim, and return the context of an attempt at it.

    Raises:
        TickworkError: The handler does not accept the arguments.
    """
    payload = definition.payload
    ctx = RunContext(claim, store, payload.decode(claim.args), deadline, payload)
    if definition.secrets:
        ctx.mask_with(definition.mask_for)
    return ctx
