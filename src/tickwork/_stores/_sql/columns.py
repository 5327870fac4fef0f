"""The columns of the tables, each declared once.

The mapping of rows (``rows.py``) and the column lists in SQL files (``{run_columns}`` and the
others of :data:`COLUMN_LISTS`) derive from these declarations. A new column of a run needs a
migration and one for Django, a higher ``SCHEMA_VERSION`` (``migrate.py``), one line here, and a
field of :class:`Run`; also of :class:`NewRun` when a dispatch sets it, and of :class:`Claim` when
the worker needs it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from tickwork._domain.runs.run import Claim, NewRun
from tickwork._domain.runs.steps import Step
from tickwork._stores.contract import RunSummary


class ColumnKind(NamedTuple):
    """How a column stores a value.

    ``read`` and ``write`` are Python expressions, in which ``{0}`` is the value; ``rows.py``
    compiles them. ``array`` is the PostgreSQL type of the elements where many values are passed
    as one array. A list shows ``default`` instead of a value that cannot be read.
    """

    array: str
    read: str = "{0}"
    write: str = "{0}"
    default: str | int | None = None


_OPTIONAL: Final = "None if {0} is None else "
_AS_MOMENT: Final = "EPOCH + timedelta(0, 0, {0})"
_AS_INSTANT: Final = "instant({0})"


def _moment(read: str) -> ColumnKind:
    return ColumnKind("bigint", read, "micros({0})", 0)


def _or_none(kind: ColumnKind) -> ColumnKind:
    return kind._replace(read=_OPTIONAL + kind.read, write=_OPTIONAL + kind.write, default=None)


def _enum(read: str, default: str) -> ColumnKind:
    return ColumnKind("text", read, "{0}.value", default=default)


TEXT: Final = ColumnKind("text", default="?")
TEXT_OR_NONE: Final = ColumnKind("text")
ID: Final = ColumnKind("uuid", default="?")
ID_OR_NONE: Final = ColumnKind("uuid")
INTEGER: Final = ColumnKind("integer", default=0)
INTEGER_OR_NONE: Final = ColumnKind("integer")
COUNT: Final = INTEGER._replace(array="bigint")
MOMENT: Final = _moment(_AS_MOMENT)
MOMENT_OR_NONE: Final = _or_none(MOMENT)
# A MOMENT that is read through a cache: schedules share few distinct times and lengths.
INSTANT: Final = _moment(_AS_INSTANT)
INSTANT_OR_NONE: Final = _or_none(INSTANT)
LENGTH: Final = ColumnKind("bigint", "length({0})", "length_micros({0})", 0)
LENGTH_OR_NONE: Final = _or_none(LENGTH)
TEXTS: Final = ColumnKind("text", "texts({0}) if {0} else ()", "dumps({0}) if {0} else None")
KEYS: Final = TEXTS._replace(read="keys({0}) if {0} else ()")
TEXTS_OR_NONE: Final = ColumnKind("text", _OPTIONAL + "texts({0})", _OPTIONAL + "dumps({0})")
# What handlers take, return and save: a store with a cipher encrypts it.
PAYLOAD: Final = ColumnKind("text", "decrypt({0})", "encrypt({0})", default="?")
PAYLOAD_OR_NONE: Final = _or_none(PAYLOAD)
_WITHOUT_CIPHER: Final = {PAYLOAD: TEXT, PAYLOAD_OR_NONE: TEXT_OR_NONE}
# An empty list is stored too.
JSON_TEXTS: Final = ColumnKind("text", "texts({0})", "dumps({0})", default="[]")
STATUS: Final = _enum("RunStatus({0})", "failed_permanent")
PHASE: Final = _enum(_OPTIONAL + "Phase({0})", "")._replace(default=None)
OVERLAP: Final = _enum("OVERLAPS[{0}]", "skip")
MISFIRE: Final = _enum("MISFIRES[{0}]", "one")
ORIGIN: Final = _enum("ORIGINS[{0}]", "api")
HISTOGRAM: Final = ColumnKind("text", "histogram({0})", "dumps({0})", default="[]")
DEFINITION_KIND: Final = _enum("DefinitionKind({0})", "job")
STEP_KIND: Final = _enum("StepKind({0})", "step")
STEP_STATE: Final = _enum("StepState({0})", "done")
FLAG: Final = ColumnKind("integer", "{0} == 1", "int({0})", 0)
PAUSE_KIND: Final = _enum("PauseKind({0})", "job")


class StoredColumn(NamedTuple):
    """One column, and the field of the value that it is read into."""

    name: str
    kind: ColumnKind = TEXT
    field: str = ""  # the name of the field, if it differs from the name of the column
    live: str = ""  # the SQL to select instead, if tickwork_run has no such column
    history: str = ""  # the SQL to select instead, if tickwork_history has no such column
    is_set_at_end: bool = False  # when a run moves to history, the query states the value

    @property
    def field_name(self) -> str:
        return self.field or self.name

    def without_cipher(self) -> "StoredColumn":
        """This column as a store without a cipher has it: payloads are texts."""
        return self._replace(kind=_WITHOUT_CIPHER.get(self.kind, self.kind))


# ---------------------------------------------------------------- runs

RUN: Final = (
    StoredColumn("id", ID),
    StoredColumn("tenant"),
    StoredColumn("job"),
    StoredColumn("queue"),
    StoredColumn("priority", INTEGER),
    StoredColumn("status", STATUS, is_set_at_end=True),
    StoredColumn("phase", PHASE, history="NULL"),
    StoredColumn("due_at", MOMENT),
    StoredColumn("expires_at", MOMENT_OR_NONE),
    StoredColumn("args", PAYLOAD),
    StoredColumn("tags", TEXTS),
    StoredColumn("attempt", INTEGER, is_set_at_end=True),
    StoredColumn("attempts_max", INTEGER),
    StoredColumn("crashes", INTEGER, is_set_at_end=True),
    StoredColumn("postponements", INTEGER),
    StoredColumn("token", INTEGER),
    StoredColumn("lease_until", MOMENT_OR_NONE, history="NULL"),
    StoredColumn("worker", ID_OR_NONE),
    StoredColumn("overlap_key", TEXT_OR_NONE, history="NULL"),
    StoredColumn("limit_keys", KEYS),
    StoredColumn("blocked_on", TEXT_OR_NONE, history="NULL"),
    StoredColumn("schedule", TEXT_OR_NONE),
    StoredColumn("nominal_at", MOMENT_OR_NONE),
    StoredColumn("target", TEXT_OR_NONE),
    StoredColumn("external_id", TEXT_OR_NONE),
    StoredColumn("retry_of", ID_OR_NONE),
    StoredColumn("trace", TEXT_OR_NONE),
    StoredColumn("progress", PAYLOAD_OR_NONE),
    StoredColumn("checkpoint", PAYLOAD_OR_NONE),
    StoredColumn("cancel_requested_at", MOMENT_OR_NONE, is_set_at_end=True),
    StoredColumn("created_at", MOMENT),
    StoredColumn("started_at", MOMENT_OR_NONE, is_set_at_end=True),
    StoredColumn("ended_at", MOMENT_OR_NONE, live="NULL"),
    StoredColumn("result", PAYLOAD_OR_NONE, live="NULL"),
    StoredColumn("reason", is_set_at_end=True),
    StoredColumn("instants", INTEGER, live="1"),
    StoredColumn("last_nominal_at", MOMENT_OR_NONE, live="NULL"),
    StoredColumn("outcome", TEXT_OR_NONE, live="NULL"),
    StoredColumn("links", INTEGER, history="0"),
)
"""``tickwork_run`` and ``tickwork_history``, as a :class:`Run`."""

_RUN_BY_NAME: Final = {column.name: column for column in RUN}

NEW_RUN: Final = tuple(c for c in RUN if c.name in NewRun._fields or c.name == "phase")
"""What a dispatch or a firing sets; the rest have defaults."""

_REPLACED: Final = frozenset(
    {
        *("queue", "priority", "phase", "due_at", "expires_at", "args", "tags", "attempts_max"),
        *("limit_keys", "blocked_on", "target", "trace"),
    }
)
REPLACED_RUN: Final = (_RUN_BY_NAME["id"], *(c for c in RUN if c.name in _REPLACED))
"""What a dispatch changes of the run that it replaces."""

CLAIM: Final = tuple(
    _RUN_BY_NAME["id"]._replace(field="run_id")
    if name == "run_id"
    else _RUN_BY_NAME[name]._replace(kind=MOMENT)
    if name == "lease_until"
    else _RUN_BY_NAME[name]
    for name in Claim._fields
)
"""What a worker needs of a run, in the order of a :class:`Claim`."""

MOVED: Final = tuple(c for c in RUN if not (c.live or c.history or c.is_set_at_end))
"""What stays as it is when a run ends and its row moves to history."""

SUMMARY: Final = tuple(_RUN_BY_NAME[name] for name in RunSummary._fields)
"""The columns of ``summarize_live`` and ``summarize_history``."""

ATTEMPT: Final = (
    StoredColumn("run", ID, field="run_id"),
    StoredColumn("token", INTEGER),
    StoredColumn("attempt", INTEGER),
    StoredColumn("outcome"),
    StoredColumn("started_at", MOMENT_OR_NONE),
    StoredColumn("ended_at", MOMENT),
    StoredColumn("error"),
    StoredColumn("traceback"),
    StoredColumn("worker", ID_OR_NONE),
)
STEP: Final = (
    StoredColumn("name"),
    StoredColumn("place", INTEGER),
    StoredColumn("kind", STEP_KIND),
    StoredColumn("state", STEP_STATE),
    StoredColumn("token", INTEGER),
    StoredColumn("at", MOMENT),
    StoredColumn("until", MOMENT_OR_NONE),
    StoredColumn("value", PAYLOAD_OR_NONE),
    StoredColumn("is_secret", FLAG),
    StoredColumn("version"),
    StoredColumn("ref", TEXT_OR_NONE),
    StoredColumn("digest"),
)
assert tuple(column.name for column in STEP) == Step._fields, STEP
LOG: Final = (
    StoredColumn("at", MOMENT),
    StoredColumn("level"),
    StoredColumn("logger"),
    StoredColumn("message"),
)

# ---------------------------------------------------------------- schedules

SPEC: Final = (
    StoredColumn("tenant"),
    StoredColumn("name"),
    StoredColumn("job"),
    StoredColumn("rule"),
    StoredColumn("zone"),
    StoredColumn("args", PAYLOAD),
    StoredColumn("queue", TEXT_OR_NONE),
    StoredColumn("priority", INTEGER_OR_NONE),
    StoredColumn("expires", LENGTH_OR_NONE),
    StoredColumn("overlap", OVERLAP),
    StoredColumn("misfire", MISFIRE),
    StoredColumn("grace", LENGTH),
    StoredColumn("jitter", LENGTH),
    StoredColumn("until", INSTANT_OR_NONE),
    StoredColumn("target", TEXT_OR_NONE),
    StoredColumn("tags", TEXTS),
    StoredColumn("origin", ORIGIN),
    StoredColumn("expect_within", LENGTH_OR_NONE),
)
_IDENTITY: Final = frozenset({"tenant", "name"})

SCHEDULE_STATE: Final = (
    StoredColumn("created_at", INSTANT),
    StoredColumn("next_due_at", INSTANT_OR_NONE),
    StoredColumn("last_fired_at", INSTANT_OR_NONE),
    StoredColumn("revision", INTEGER),
    StoredColumn("paused_at", INSTANT_OR_NONE),
    StoredColumn("paused_until", INSTANT_OR_NONE),
    StoredColumn("pause_note", field="paused_note"),
    StoredColumn("seen_at", INSTANT_OR_NONE),
)
_STATE_AT_FIRST: Final = frozenset({"created_at", "next_due_at", "seen_at"})

SCHEDULE: Final = (StoredColumn("id", ID), *SPEC, *SCHEDULE_STATE)
NEW_SCHEDULE: Final = tuple(
    c for c in SCHEDULE if c not in SCHEDULE_STATE or c.name in _STATE_AT_FIRST
)

# ---------------------------------------------------------------- the others

WORKER: Final = (
    StoredColumn("id", ID),
    StoredColumn("host"),
    StoredColumn("pid", INTEGER),
    StoredColumn("boot_id"),
    StoredColumn("process_started"),
    StoredColumn("started_at", MOMENT),
    StoredColumn("beat_at", MOMENT),
    StoredColumn("queues", TEXTS_OR_NONE),
    StoredColumn("jobs", JSON_TEXTS),
    StoredColumn("slots", INTEGER),
    StoredColumn("running", INTEGER),
    StoredColumn("version"),
)
LOCK: Final = (
    StoredColumn("name"),
    StoredColumn("owner"),
    StoredColumn("host"),
    StoredColumn("pid", INTEGER),
    StoredColumn("acquired_at", MOMENT),
    StoredColumn("until", MOMENT),
)
PAUSE: Final = (
    StoredColumn("kind", PAUSE_KIND),
    StoredColumn("name"),
    StoredColumn("paused_at", MOMENT),
    StoredColumn("note"),
    StoredColumn("until", MOMENT_OR_NONE),
)
LIMIT: Final = (
    StoredColumn("name"),
    StoredColumn("slots", INTEGER._replace(default=1)),
    StoredColumn("override", INTEGER_OR_NONE),
)
JOB: Final = (
    StoredColumn("tenant"),
    StoredColumn("name"),
    StoredColumn("seen_at", MOMENT_OR_NONE),
    StoredColumn("last_run_at", MOMENT_OR_NONE),
    StoredColumn("last_success_at", MOMENT_OR_NONE),
    StoredColumn("last_error_at", MOMENT_OR_NONE),
    StoredColumn("last_error"),
    StoredColumn("failures", INTEGER),
)
DEFINITION: Final = (
    StoredColumn("kind", DEFINITION_KIND),
    StoredColumn("name"),
    StoredColumn("application"),
    StoredColumn("handler"),
    StoredColumn("seen_at", MOMENT),
)

ROLLUP: Final = (
    StoredColumn("begins_at", INSTANT),
    StoredColumn("job"),
    StoredColumn("queue"),
    StoredColumn("status", STATUS),
    StoredColumn("ended", COUNT),
    StoredColumn("runtimes", HISTOGRAM),
    StoredColumn("waits", HISTOGRAM),
)
NEW_ROLLUP: Final = (StoredColumn("level", INTEGER), *ROLLUP)

AUDIT: Final = (
    StoredColumn("id", ID),
    StoredColumn("at", MOMENT),
    StoredColumn("actor"),
    StoredColumn("source"),
    StoredColumn("action"),
    StoredColumn("subject"),
    StoredColumn("detail"),
)
ALERT: Final = (
    StoredColumn("id", ID),
    StoredColumn("name"),
    StoredColumn("kind"),
    StoredColumn("level"),
    StoredColumn("text"),
    StoredColumn("began_at", MOMENT),
    StoredColumn("ended_at", MOMENT_OR_NONE),
)
REQUEST: Final = (
    StoredColumn("key"),
    StoredColumn("digest"),
    StoredColumn("run", ID, field="run_id"),
    StoredColumn("until", MOMENT),
)

# ---------------------------------------------------------------- lists for SQL


def names(columns: Iterable[StoredColumn]) -> list[str]:
    return [column.name for column in columns]


def _join_names(columns: Iterable[StoredColumn]) -> str:
    return ", ".join(names(columns))


def _run_from(table: str) -> str:
    """Select all columns of a run, with other SQL for those that this table does not have."""
    instead = {column.name: getattr(column, table) for column in RUN}
    return ", ".join(f"{sql} AS {name}" if sql else name for name, sql in instead.items())


def _for_insert(name: str, columns: Sequence[StoredColumn]) -> dict[str, str]:
    """The columns, and the placeholders of one row in the notation of each driver."""
    numbers = range(1, len(columns) + 1)
    return {
        f"{name}_columns": _join_names(columns),
        f"{name}_places": ", ".join(f"?{number}" for number in numbers),
        f"{name}_values": ", ".join(f":v{number}" for number in numbers),
        f"{name}_arrays": ", ".join(
            f":c{number}::{column.kind.array}[]"
            for number, column in zip(numbers, columns, strict=True)
        ),
        f"{name}_elements": ", ".join(
            f":e{number}::{column.kind.array}"
            for number, column in zip(numbers, columns, strict=True)
        ),
    }


def _for_params(name: str, columns: Sequence[StoredColumn]) -> dict[str, str]:
    """The columns, and one placeholder for each, named after its column."""
    return {
        f"{name}_columns": _join_names(columns),
        f"{name}_params": ", ".join(f":{column.name}" for column in columns),
    }


COLUMN_LISTS: Final[Mapping[str, str]] = {
    "claim_columns": _join_names(CLAIM),
    "moved_columns": _join_names(MOVED),
    "live_run_columns": _run_from("live"),
    "history_run_columns": _run_from("history"),
    "schedule_columns": _join_names(SCHEDULE),
    "schedule_changes": ", ".join(
        f"{column.name} = :{column.name}" for column in SPEC if column.name not in _IDENTITY
    ),
    "attempt_columns": _join_names(ATTEMPT),
    "log_columns": _join_names(LOG),
    "step_columns": _join_names(STEP),
    "job_columns": _join_names(JOB),
    "rollup_columns": _join_names(ROLLUP),
    "limit_columns": _join_names(LIMIT),
    **_for_insert("new_run", NEW_RUN),
    **_for_insert("replaced_run", REPLACED_RUN),
    "replaced_run_changes": ", ".join(
        f"{column.name} = ?{number}" for number, column in enumerate(REPLACED_RUN[1:], 2)
    ),
    "replaced_run_joined": ", ".join(
        f"{column.name} = given.{column.name}" for column in REPLACED_RUN[1:]
    ),
    **_for_insert("new_schedule", NEW_SCHEDULE),
    **_for_insert("new_rollup", NEW_ROLLUP),
    **_for_insert("definition", DEFINITION),
    **_for_insert("alert", ALERT),
    **_for_params("worker", WORKER),
    **_for_params("lock", LOCK),
    **_for_params("pause", PAUSE),
    **_for_params("audit", AUDIT),
    **_for_params("request", REQUEST),
}
"""What ``{name}`` stands for in SQL files, besides the fragments that they define themselves.

``{run.moved_columns}`` writes each column as ``run.id``.
"""
