"""Every exception that tickwork raises, in one tree.

    TickworkError
    ├── DefinitionError              the program describes something impossible
    │   └── InvalidSchedule          (ValueError) a rule that cannot be, or never fires
    │       └── CronError            a cron expression that does not parse
    └── ...

Each error says what happened, why, and what to do about it. Facts are attributes, not
only words, and ``code`` is stable: it has a section in ``docs/reference/errors.md``.
"""

from typing import Any, ClassVar, Self


class TickworkError(Exception):
    """Base of the tree. Says what happened, why, and what to do about it."""

    code: ClassVar[str] = "tickwork"

    def __init__(self, what: str, *, why: str = "", fix: str = "") -> None:
        super().__init__("\n".join(part for part in (what, why, fix) if part))
        self.what = what
        self.why = why
        self.fix = fix

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors travel back from worker processes. The default would call
        # __init__ again with the finished message, which subclasses cannot take.
        return _restore, (type(self), self.args, self.__dict__)

    @classmethod
    def _bare(cls, args: tuple[Any, ...], facts: dict[str, Any]) -> Self:
        error = cls.__new__(cls)
        error.args = args
        error.__dict__.update(facts)
        return error


def _restore(kind: type[TickworkError], args: tuple[Any, ...], facts: dict[str, Any]) -> TickworkError:
    return kind._bare(args, facts)  # noqa: SLF001  # the other half of __reduce__


class DefinitionError(TickworkError):
    """The program describes something that cannot be."""

    code = "definition"


class InvalidSchedule(DefinitionError, ValueError):
    """A rule that cannot be: it contradicts itself, or it never fires."""

    code = "invalid-schedule"


class CronError(InvalidSchedule):
    """A cron expression or pattern that does not parse.

    ``field`` and ``token`` say where, ``position`` is the token's place in ``expr``
    (0-based), and ``hint`` is the spelling that would work, where there is one.
    """

    code = "invalid-cron"

    def __init__(
        self,
        expr: str,
        reason: str,
        *,
        field: str = "",
        token: str = "",
        position: int = 0,
        hint: str = "",
    ) -> None:
        shown = expr if len(expr) <= 80 else f"{expr[:77]}..."
        super().__init__(f"invalid cron {shown!r}: {reason}", fix=hint)
        self.expr = expr
        self.field = field
        self.token = token
        self.position = position
        self.hint = hint
