"""All exceptions of tickwork, in two trees.

    TickworkError
    ├── DefinitionError              the program defines something invalid
    │   ├── InvalidSchedule          (ValueError) a rule that is invalid or never fires
    │   │   ├── RuleTooCostly        its times take too many steps to compute
    │   │   └── CronError            a cron expression that does not parse
    │   ├── InvalidOption            (ValueError) an option with an invalid value
    │   │   └── UnknownOption        an option that does not exist
    │   ├── InvalidDuration          (ValueError) a value that is not a length of time
    │   ├── NaiveDatetime            (ValueError) a datetime without a time zone
    │   ├── DuplicateDefinition      two different definitions with the same name
    │   │   └── ScheduleNameTaken    a job and a schedule of a job with the same name
    │   ├── ScheduleConflict         another program on the database defines it differently
    │   ├── JobNotFound              (LookupError) a job that this process does not know
    │   ├── HandlerNotFound          (LookupError) a path without a handler
    │   ├── HandlerNotAllowed        a path that is not allowed in a stored run
    │   └── ConfigError              (ValueError) a configuration file with errors
    ├── ArgumentError                (TypeError) arguments that the handler does not accept
    ├── PayloadError                 (ValueError) a value that cannot be stored or read
    │   ├── NotSerializable          it has no JSON form
    │   ├── PayloadTooLarge          it is larger than the limit
    │   ├── PayloadUnreadable        the stored text is not a valid payload
    │   │   └── PayloadEncrypted     it is encrypted with another key
    │   └── PayloadMismatch          stored values do not fit the annotations of the handler
    ├── StoreError                   the database or the connection to it
    │   ├── InvalidStoreUrl          (ValueError) a URL that is not a store URL
    │   ├── StoreUnavailable         (ConnectionError) the database does not answer
    │   │   ├── FolderMissing        the folder of a SQLite database does not exist
    │   │   ├── AccessDenied         the server refuses the user, password or database
    │   │   ├── StoreDamaged         an SQLite file that is damaged, or no database
    │   │   ├── StoreReplaced        an SQLite file that was deleted or replaced
    │   │   ├── StoreLinked          an SQLite file with several names (hard links)
    │   │   ├── StoreReadOnly        a standby, or a server that is set to read-only
    │   │   ├── StatementFailed      a full disk, or a missing right
    │   │   └── OutcomeUnknown       no answer to COMMIT arrived
    │   ├── ValueRejected            (ValueError) the database cannot store a value
    │   ├── RowRejected               a trigger of the database rejected a row
    │   ├── ReadTimeout              (TimeoutError) a read took longer than its limit
    │   ├── StoreBusy                (TimeoutError) another connection holds the lock
    │   ├── DriverMissing            (ImportError) a driver is not installed
    │   ├── ServerTooOld             the server's version is not supported
    │   ├── NetworkFileSystem        SQLite on a file system without reliable locks
    │   ├── WrongConnection          a connection that the store cannot use
    │   ├── SchemaMissing            the tables do not exist
    │   ├── SchemaDamaged            a table or a column is missing, or the version
    │   ├── SchemaOutdated           the tables are older than this code
    │   └── SchemaTooNew             the tables are newer than this code
    ├── RunError                     an operation on a run
    │   ├── RunNotFound              (LookupError) there is no such run
    │   │   └── NotCommitted         its transaction is not committed
    │   ├── AmbiguousRun             (LookupError) several ids start with this prefix
    │   ├── AlreadyClaimed           too late to reschedule it
    │   ├── InvalidTransition        its status does not allow this change
    │   ├── LeaseLost                another worker has taken it over
    │   ├── AttemptTimeout           (TimeoutError) an attempt took too long
    │   ├── WaitTimeout              (TimeoutError) it did not finish while the caller waited
    │   ├── RunUnsuccessful          it finished without a result
    │   └── ResultExpired            its result was deleted, the run was not
    ├── FlowError                    a step of a run that cannot succeed at a later attempt
    │   ├── DuplicateStep            a name is used twice in one attempt
    │   ├── NestedStep               a step inside of a step, or in another thread
    │   ├── BlockingStep             a step in a coroutine that stops its event loop
    │   ├── InvalidStep              (ValueError) a name or a value that cannot be stored or read
    │   ├── FlowChanged              a call is not the one that was stored
    │   ├── StepLimit                the run has too many steps
    │   └── FlowsUnavailable         the engine of the job has no database
    ├── EventTimeout                 (TimeoutError) an event did not come in time
    ├── SubRunFailed                 a run that another one has called did not complete
    ├── CallbackRefused              (ValueError) a link that answers no wait (any more)
    ├── StepFailed                   an earlier attempt recorded that a step failed
    ├── EngineError                  an engine, or the connection to it
    │   ├── EngineMissing            (ImportError) the package of an engine is not installed
    │   ├── EngineUnavailable        (ConnectionError) its broker or cluster does not answer
    │   ├── EngineBroken             an engine of this process can start no attempt
    │   └── HandoverRejected         (ValueError) a message that cannot be executed here
    ├── ScheduleNotFound             (LookupError) there is no such schedule
    ├── WorkerNotFound               (LookupError) there is no such worker, or several
    ├── LockHeld                     another process holds a named lock
    ├── StillDue                     drain() reached its limit
    ├── ExtraMissing                 (ImportError) a package that an integration needs
    ├── AlreadyStarted               (RuntimeError) this app's worker is running
    ├── WorkerStartFailed            a function of on_worker_start raised an exception
    ├── KeyReused                    an idempotency key of another request
    └── DatabaseNotAllowed           (AssertionError) a test may not use this database

    Signal                           not an error: a handler's request about its own run
    ├── RetryLater                   failed; try again
    ├── Discard                      failed; never try again
    └── Snooze                       not now; this attempt does not count

    SuspendRun                       (BaseException) ends an attempt that sleeps or waits

Each error states what happened, why, and what to do about it. The values in a message are
also attributes. ``code`` is stable: it has a section in ``docs/reference/errors.md``.

Signals are not errors, so that ``except TickworkError`` around a dispatch inside a handler
does not catch a signal by accident.
"""

# ruff: noqa: N818  # these names read well without the suffix Error

from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from shlex import quote
from typing import Any, ClassVar, Final, TypeVar, dataclass_transform

from tickwork._dialects import is_embedded
from tickwork._masks.url import mask_reason, mask_url
from tickwork._program import name_commands

_E = TypeVar("_E", bound="TickworkError")

_INSTALL: Final = (
    "In a clone of tickwork: pip install '.[{extra}]'. With its wheel: "
    "pip install 'tickwork-VERSION-py3-none-any.whl[{extra}]'."
)


class TickworkError(Exception):
    """Base of all errors. It states what happened, why, and what to do about it."""

    code: ClassVar[str] = "tickwork"
    texts: ClassVar[tuple[str, str, str]]
    """What, why and fix of an error that :func:`message` declares, with its fields in braces."""

    def __init__(self, what: str, *, why: str = "", fix: str = "") -> None:
        fix = name_commands(fix)
        super().__init__("\n".join(part for part in (what, why, fix) if part))
        self.what = what
        self.why = why
        self.fix = fix

    def __post_init__(self) -> None:
        """Write the message of :func:`message`, after the fields were set."""
        shown = {
            name: _seconds(value) if isinstance(value, timedelta) else value
            for name, value in vars(self).items()
        }
        what, why, fix = (text.format_map(shown) for text in self.texts)
        TickworkError.__init__(self, what, why=why, fix=fix)

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors travel back from worker processes. The default would call
        # __init__ again with the finished message, which subclasses cannot take.
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[Exception], args: tuple[Any, ...], attributes: dict[str, Any]) -> Exception:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(attributes)
    return error


@dataclass_transform(eq_default=False)
def message(what: str, *, why: str = "", fix: str = "") -> Callable[[type[_E]], type[_E]]:
    """Declare an error whose message is a text with its fields in braces.

    The annotations of the class are the parameters of its constructor, and its attributes.
    """

    def declare(kind: type[_E]) -> type[_E]:
        kind.texts = (what, why, fix)
        return dataclass(eq=False, repr=False, match_args=False)(kind)

    return declare


# ---------------------------------------------------------------- definitions


class DefinitionError(TickworkError):
    """The program defines something that is not valid."""

    code = "definition"
    job: str = ""
    place: str = ""

    def name_job(self, job: str, place: str) -> None:
        """Add the job, if it is known, and the file and line where the program defines it."""
        if self.place:
            return
        self.job, self.place = job, place
        self.why = f"It is an option of {job!r}, set at {place}." if job else f"Set at {place}."
        self.args = ("\n".join(part for part in (self.what, self.why, self.fix) if part),)


class InvalidSchedule(DefinitionError, ValueError):
    """A schedule rule that is not valid, or that never fires."""

    code = "invalid-schedule"


@message(
    "The times of the rule take more than {steps_max:,} steps to compute.",
    why="Its parts hardly ever match together, or it counts very many firings.",
    fix="Use fewer windows and rules inside of rules, or a smaller max_firings.",
)
class RuleTooCostly(InvalidSchedule):
    """A rule or a calendar whose times take too many steps to compute."""

    code = "rule-too-costly"

    steps_max: int


class CronError(InvalidSchedule):
    """A cron expression or pattern that does not parse.

    ``field`` and ``token`` name the part that is wrong. ``position`` is the index of the token
    in ``expr``. ``hint`` suggests a spelling that works, if there is one.
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
        super().__init__(f"Invalid cron expression {shown!r}: {reason}.", fix=hint)
        self.expr = expr
        self.field = field
        self.token = token
        self.position = position
        self.hint = hint


class InvalidOption(DefinitionError, ValueError):
    """An option of a job, a schedule or a worker with an invalid value.

    ``rule`` says what the value must be, as the end of a sentence that begins with the option.
    """

    code = "invalid-option"

    def __init__(self, option: str, value: object, rule: str, *, fix: str = "") -> None:
        super().__init__(f"{option} {rule}, got {_show(value)}.", fix=fix)
        self.option = option
        self.value = value
        self.rule = rule


class UnknownOption(InvalidOption):
    """An option that does not exist. ``owner`` is what it was given to."""

    code = "unknown-option"

    def __init__(self, owner: str, option: str, *, known: Iterable[str]) -> None:
        names = sorted(known)
        TickworkError.__init__(
            self,
            f"{owner} has no option {option!r}.",
            fix=suggest(option, names) or f"The options are: {', '.join(names)}.",
        )
        self.owner = owner
        self.option = option
        self.value = None
        self.rule = "must be a known option"


class InvalidDuration(DefinitionError, ValueError):
    """A value that is not a length of time."""

    code = "invalid-duration"

    def __init__(self, text: object, reason: str, *, option: str = "") -> None:
        what = f"{_show(text)} is not a length of time: {reason}"
        super().__init__(
            f"{option}: {what}" if option else what,
            fix="Write a number and a unit, such as '90s', '5m', '1h30m' or '2 days'.",
        )
        self.text = text
        self.reason = reason
        self.option = option


@message(
    "{moment} has no time zone.",
    why="Without a time zone it means a different moment on every machine.",
    fix="Use datetime.now(UTC), or datetime(..., tzinfo=ZoneInfo('Europe/Berlin')).",
)
class NaiveDatetime(DefinitionError, ValueError):
    """A datetime without a time zone."""

    code = "naive-datetime"

    moment: object


@message(
    "The {kind} {name!r} has two different definitions.",
    why="First definition: {first}. Second definition: {second}.",
    fix="Rename one of them, or make them equal.",
)
class DuplicateDefinition(DefinitionError):
    """Two different definitions with the same name. The message names both places."""

    code = "duplicate-definition"

    kind: str
    name: str
    _: KW_ONLY
    first: str
    second: str


@message(
    "A schedule needs a name of its own: {name!r} is the name of a job.",
    why="The job: {first}. The schedule: {second}.",
    fix="Rename the schedule: app.schedule('{name} daily', job).",
)
class ScheduleNameTaken(DuplicateDefinition):
    """A further schedule of a job has the name of a job, which is that of its first schedule."""

    code = "schedule-name-taken"


@message(
    "The applications {other!r} and {application!r} define the schedule {name!r} differently.",
    why="{other!r} has stored it. {application!r} defines it at {place}.",
    fix="Rename one of the two schedules. If both applications are one program, give it one name: "
    "Tickwork(name={other!r}). A schedule that {other!r} has not defined for 2 days is free.",
)
class ScheduleConflict(DefinitionError):
    """Two programs on one database define a schedule differently. Nothing was stored."""

    code = "schedule-conflict"

    name: str
    _: KW_ONLY
    application: str
    other: str
    place: str


class JobNotFound(DefinitionError, LookupError):
    """This process has no job with this name."""

    code = "job-not-found"

    def __init__(self, name: str, *, known: Iterable[str], fix: str = "") -> None:
        names = sorted(known)
        super().__init__(
            f"No job named {name!r} is registered in this process.",
            why=f"This process has {_list_names('job', names)}.",
            fix=fix
            or suggest(name, names)
            or "Load the module that defines it (tickwork -a your.module:app work). If another "
            f"program defines it, use app.remote({name!r}).",
        )
        self.name = name


@message(
    "The handler {path!r} was not found.",
    why="{reason}",
    fix="Write it as 'package.module:Name', where Name is a function or a class "
    "with handle() or execute().",
)
class HandlerNotFound(DefinitionError, LookupError):
    """A handler path that does not lead to a function or a handler class."""

    code = "handler-not-found"

    path: str
    reason: str


class HandlerNotAllowed(DefinitionError):
    """A path that is not allowed in a stored run.

    A stored run may have the name of a job of the application, or the path of a class with
    ``handle`` or ``execute`` that a module below ``handler_paths`` defines. Without this check,
    a program that writes to the database could make a worker call any function.
    """

    code = "handler-not-allowed"

    def __init__(self, path: str, *, allowed: Iterable[str], reason: str = "") -> None:
        prefixes = tuple(allowed)
        super().__init__(
            f"A stored run may not name the handler {path!r}.",
            why=reason or f"handler_paths allows: {', '.join(prefixes) or 'nothing'}.",
            fix="Make it a job (@app.job), or name a class with handle() or execute() that is "
            "defined in that package."
            if reason
            else "If you trust every program that writes to the database, add the package of the "
            "handler to handler_paths.",
        )
        self.path = path
        self.allowed = prefixes


class ConfigError(DefinitionError, ValueError):
    """A configuration file with errors. The message lists all of them."""

    code = "config"

    def __init__(self, source: str, faults: Iterable[str]) -> None:
        problems = tuple(faults)
        super().__init__(
            f"{source} has {len(problems)} error{'' if len(problems) == 1 else 's'}.",
            why="\n".join(f"- {fault}" for fault in problems),
        )
        self.source = source
        self.faults = problems


# ---------------------------------------------------------------- arguments and payloads


class ArgumentError(TickworkError, TypeError):
    """Arguments that do not match the handler's signature.

    The caller of dispatch() gets this error. A run that was stored with an older signature
    fails with it.
    """

    code = "wrong-arguments"

    def __init__(
        self, job: str, reason: str, *, signature: str = "", fix: str = "", schedule: str = ""
    ) -> None:
        is_further = schedule not in {"", job}
        where = (
            f"the schedule {schedule!r} of the job {job!r}" if is_further else f"the job {job!r}"
        )
        own = (
            "Set the handler's own arguments: args(name=value)."
            if schedule
            else "Pass the handler's own arguments. Options such as at, delay and queue are set "
            "before dispatch()."
        )
        super().__init__(
            f"Wrong arguments for {where}: {reason}",
            why=f"The handler's parameters are {signature}." if signature else "",
            fix=fix or own,
        )
        self.job = job
        self.reason = reason
        self.signature = signature
        self.schedule = schedule


class PayloadError(TickworkError, ValueError):
    """Arguments or a result that cannot be stored, or cannot be read."""

    code = "payload"


class NotSerializable(PayloadError):
    """A value that has no exact JSON form. ``path`` is its place in the payload."""

    code = "not-serializable"

    def __init__(self, path: str, reason: str, *, fix: str = "") -> None:
        super().__init__(f"The value at {path} cannot be stored: {reason}", fix=fix)
        self.path = path
        self.reason = reason


@message(
    "The payload has at least {size:,} bytes. The limit is {size_max:,} bytes.",
    why="The database reads the payload for every attempt of the run.",
    fix="Store the data elsewhere and pass its key, or raise payload_max.",
)
class PayloadTooLarge(PayloadError):
    """A payload that is larger than the limit."""

    code = "payload-too-large"

    size: int
    _: KW_ONLY
    size_max: int


@message(
    "The stored payload cannot be read: {reason}",
    why="Another program or a newer version of tickwork wrote it.",
    fix="Upgrade this process to the newest version that writes to the database.",
)
class PayloadUnreadable(PayloadError):
    """A stored payload that is not JSON, or has a tag that this version does not know."""

    code = "payload-unreadable"

    reason: str


class PayloadEncrypted(PayloadUnreadable):
    """A stored payload that is encrypted with a key that this program does not have."""

    code = "payload-encrypted"

    def __init__(self) -> None:
        PayloadError.__init__(
            self,
            "The stored payload is encrypted, and this program does not have its key.",
            why="It was stored by a program with Tickwork(encrypt=...).",
            fix="Pass all keys that are in use, the newest first: Tickwork(encrypt=[new, old]).",
        )
        self.reason: str = "it is encrypted."


class PayloadMismatch(PayloadError):
    """Stored arguments or a stored result that the annotations of the handler do not accept.

    A run with such arguments fails and is not retried: the next attempt would fail as well.
    """

    code = "payload-mismatch"

    def __init__(self, job: str, reason: str, *, what: str = "arguments") -> None:
        super().__init__(
            f"The stored {what} of the job {job!r} cannot be rebuilt: {reason}",
            why="Another version of the program stored them, or another program.",
            fix="Give new fields a default, and keep removed fields until no run has them. "
            "Retry the run when the program accepts it.",
        )
        self.job = job
        self.reason = reason


# ---------------------------------------------------------------- stores


class StoreError(TickworkError):
    """A problem with the database or with the connection to it."""

    code = "store"
    _may_quote_url: ClassVar[bool] = False
    """Whether the reason is a text about the URL, which may repeat its password."""

    def __post_init__(self) -> None:
        fields = vars(self)
        if "url" in fields:
            if self._may_quote_url:
                fields["reason"] = mask_reason(fields["reason"], fields["url"])
            fields["url"] = mask_url(fields["url"])
        super().__post_init__()


@message(
    "{url!r} is not a valid store URL: {reason}",
    fix="Use sqlite:///jobs.db, postgresql://user@host/db or mysql://user@host/db.",
)
class InvalidStoreUrl(StoreError, ValueError):
    """A URL that is not a store URL. The message does not show its password."""

    code = "invalid-store-url"
    _may_quote_url = True

    url: str
    reason: str


@message(
    "The store at {url} cannot be reached.",
    why="{reason}",
    fix="Check that the server runs and that the URL is right: `tickwork doctor`.",
)
class StoreUnavailable(StoreError, ConnectionError):
    """The database does not answer. Workers retry; callers get this error."""

    code = "store-unavailable"
    _may_quote_url = True
    is_permanent: ClassVar[bool] = False
    """Whether this process cannot use the store any more, however often it retries."""

    url: str
    reason: str


@message(
    "The database {url} cannot be opened.",
    why="{reason}",
    fix="Create the folder, or correct the URL: an absolute path has four slashes, "
    "sqlite:////srv/shop/jobs.db.",
)
class FolderMissing(StoreUnavailable):
    """The folder of a SQLite database does not exist."""

    code = "folder-missing"


@message(
    "The server of {url} refused the connection.",
    why="{reason}",
    fix="Check the user, the password and the name of the database in the URL.",
)
class AccessDenied(StoreUnavailable):
    """The server answers, and refuses the user, the password or the database of the URL."""

    code = "access-denied"


class StoreDamaged(StoreUnavailable):
    """The file is not an SQLite database, or parts of it are unreadable. A worker stops."""

    code = "store-damaged"
    is_permanent = True

    def __init__(self, path: str, reason: str) -> None:
        StoreError.__init__(
            self,
            f"{path} is not an SQLite database, or it is damaged.",
            why=reason,
            fix="Stop all workers, and restore a backup. `sqlite3 FILE .recover` reads what is "
            "left of a damaged file.",
        )
        self.url: str = f"sqlite:///{path}"
        self.path = path
        self.reason = reason


class StoreReplaced(StoreUnavailable):
    """The SQLite file was deleted or replaced while this process had it open. A worker stops."""

    code = "store-replaced"
    is_permanent = True

    def __init__(self, path: str, *, is_deleted: bool) -> None:
        what = f"{path} was {'deleted' if is_deleted else 'replaced'} while it was in use."
        StoreError.__init__(
            self,
            what,
            why="This process still has the old file open: what it writes there is lost.",
            fix="Restart the process, or call app.close(). Stop workers before you move, delete or "
            "restore the file.",
        )
        self.url: str = f"sqlite:///{path}"
        self.reason = what
        self.path = path
        self.is_deleted = is_deleted


class StoreLinked(StoreUnavailable):
    """The SQLite file has several names (hard links), and each would have a log of its own."""

    code = "store-linked"

    def __init__(self, path: str, *, links: int) -> None:
        what = f"{path} is a file with {links} names (hard links)."
        StoreError.__init__(
            self,
            what,
            why="SQLite keeps a log beside each name. Processes that open different names do not "
            "see each other's changes, and damage the file.",
            fix="Stop the programs that use the file, and delete all names but one: "
            f"`find DIRECTORY -samefile {quote(path)}` lists them. A symbolic link may be a second "
            "name. For a copy use VACUUM INTO.",
        )
        self.url: str = f"sqlite:///{path}"
        self.reason = what
        self.path = path
        self.links = links


@message(
    "The store at {url} is read-only.",
    why="It is a standby, or set to read-only: {reason}",
    fix="Use the URL of the primary server. With several hosts in a PostgreSQL URL, add "
    "target_session_attrs=read-write.",
)
class StoreReadOnly(StoreUnavailable):
    """The server accepts no changes: it is a standby, a replica, or set to read-only."""

    code = "store-read-only"


@message(
    "The store at {url} cannot execute a statement ({state}).",
    why="{reason}",
    fix="Remove the cause, such as a full disk or a missing right. Then workers write the "
    "outcomes that they have kept.",
)
class StatementFailed(StoreUnavailable):
    """The database answers, and cannot execute a statement: its disk is full, a right is missing.

    No value is the cause, so the same statement may succeed later. Workers keep their outcomes.
    ``state`` is the SQLSTATE, or the number of the error where the database has no SQLSTATE.
    """

    code = "statement-failed"
    _may_quote_url = False

    _: KW_ONLY
    state: str


class OutcomeUnknown(StoreUnavailable):
    """No answer to COMMIT arrived: the change may be stored or not.

    ``run_ids`` are the runs of a dispatch. With ``has_timed_out`` the server did not answer in
    time; otherwise the connection was lost.
    """

    code = "outcome-unknown"

    def __init__(
        self, url: str, reason: str, *, has_timed_out: bool = False, run_ids: Iterable[str] = ()
    ) -> None:
        reason = mask_reason(reason, url)
        ids = tuple(run_ids)
        event = f"The connection to {mask_url(url)} was lost during COMMIT"
        if has_timed_out:
            event = f"The store at {mask_url(url)} did not answer COMMIT in time"
        StoreError.__init__(
            self,
            f"{event}: {_name_runs(ids) or 'the change'} may be stored or not.",
            why=reason,
            fix="Look for it with app.get_run(id) when the store answers again. A repeat with the "
            "same unique() key adds no second run; without a key it may."
            if ids
            else "Check whether the change is stored before you repeat it.",
        )
        self.url: str = mask_url(url)
        self.reason = reason
        self.has_timed_out = has_timed_out
        self.run_ids = ids

    def of_runs(self, run_ids: Iterable[str]) -> "OutcomeUnknown":
        """The same error for the dispatch of these runs."""
        return OutcomeUnknown(
            self.url, self.reason, has_timed_out=self.has_timed_out, run_ids=run_ids
        )


class ValueRejected(StoreError, ValueError):
    """The database cannot store a value: it is too large, or violates a constraint.

    ``state`` is as for :class:`StatementFailed`.
    """

    code = "value-rejected"

    def __init__(self, reason: str, *, state: str, fix: str = "") -> None:
        super().__init__(f"The database rejected a value ({state}).", why=reason, fix=fix)
        self.reason = reason
        self.state = state


@message(
    "A trigger of the database rejected a row ({state}).",
    why="{reason}",
    fix="Correct the trigger on the tables of tickwork, or drop it.",
)
class RowRejected(StoreError):
    """A trigger that another program added to the database rejected a row.

    A worker writes the others, and repeats the rejected one: tickwork cannot know what the trigger
    dislikes. ``state`` is as for :class:`StatementFailed`.
    """

    code = "row-rejected"

    reason: str
    _: KW_ONLY
    state: str


@message(
    "The store at {url} took longer than {limit} to answer.",
    why="The dashboard limits its reads, so that a page cannot slow down the workers.",
    fix="Narrow the filters of the page. If every page is slow: `tickwork doctor`.",
)
class ReadTimeout(StoreError, TimeoutError):
    """A read took longer than its caller allows, and the database has ended it."""

    code = "read-timeout"

    url: str
    _: KW_ONLY
    limit: timedelta


class StoreBusy(StoreError, TimeoutError):
    """Another connection held the lock of the database for too long."""

    code = "store-busy"

    def __init__(self, url: str, *, waited: timedelta) -> None:
        what = f"Another connection locked the store at {mask_url(url)} for {_seconds(waited)}."
        why = "Only one connection at a time can write." if is_embedded(url) else ""
        if not waited:
            what = f"The store at {mask_url(url)} is busy."
            why = "In every try, other connections took the same keys or locks."
        super().__init__(
            what, why=why, fix="Look for a transaction that stays open: `tickwork doctor`."
        )
        self.url: str = mask_url(url)
        self.waited = waited

    @property
    def is_for_everyone(self) -> bool:
        """Whether no connection can write: an SQLite file has one lock for all writers."""
        return is_embedded(self.url)


@message(
    "The driver {driver!r} is not installed.",
    why="A {extra} store needs it.",
    fix=_INSTALL,
)
class DriverMissing(StoreError, ImportError):
    """The driver of a database is not installed."""

    code = "driver-missing"

    driver: str
    _: KW_ONLY
    extra: str


@message(
    "The package {package!r} is not installed.",
    why="The part of tickwork with the extra {extra!r} needs it.",
    fix=_INSTALL,
)
class ExtraMissing(TickworkError, ImportError):
    """A package that an integration needs is not installed."""

    code = "extra-missing"

    package: str
    _: KW_ONLY
    extra: str


@message(
    "{server} {found} is too old; tickwork needs {needed} or newer.",
    why="Older versions have no SKIP LOCKED, or lock more rows than they should.",
    fix="Upgrade {server}.",
)
class ServerTooOld(StoreError):
    """The version of the database server is not supported."""

    code = "server-too-old"

    server: str
    _: KW_ONLY
    found: str
    needed: str


@message(
    "{path} is on {file_system}, a network file system.",
    why="File locks are not reliable there: two workers could claim the same run.",
    fix="Put the file on a local disk, or use PostgreSQL or MySQL.",
)
class NetworkFileSystem(StoreError):
    """An SQLite file on a network file system, where file locks are not reliable."""

    code = "network-file-system"

    path: str
    _: KW_ONLY
    file_system: str


@message(
    "The store at {url} cannot use this connection.",
    why="{reason}",
    fix="Pass {takes}.",
)
class WrongConnection(StoreError):
    """A caller's connection that this store cannot use.

    It has the wrong type, or it is connected to another database.
    """

    code = "wrong-connection"

    url: str
    reason: str
    _: KW_ONLY
    takes: str


class SchemaMissing(StoreError):
    """The database has no tickwork tables."""

    code = "schema-missing"

    def __init__(self, url: str, *, is_in_transaction: bool = False) -> None:
        what, why = f"The store at {mask_url(url)} has no tickwork tables.", ""
        fix = "Run `tickwork install`, or pass install=True to Tickwork()."
        if is_in_transaction:
            what = f"The store at {mask_url(url)} has no tickwork tables, or outdated ones."
            why = "They cannot be created while your transaction is open: it may hold the lock."
            fix = "Call app.install() before the transaction, or run `tickwork install`."
        super().__init__(what, why=why, fix=fix)
        self.is_in_transaction = is_in_transaction
        self.url: str = mask_url(url)


@message(
    "The tables of the store at {url} are damaged: they are not those of version {version}.",
    why="{reason}",
    fix="Repair them, or restore a backup. `tickwork install --sql` prints version "
    "{version}, and `tickwork doctor` checks the tables.",
)
class SchemaDamaged(StoreError):
    """The tables are not those of their version: one was changed or dropped."""

    code = "schema-damaged"
    _may_quote_url = True

    url: str
    _: KW_ONLY
    version: int
    reason: str


@message(
    "The tables have version {found}; this version of tickwork needs {needed}.",
    fix="Run `tickwork install`. Workers of the previous release can run meanwhile.",
)
class SchemaOutdated(StoreError):
    """The tables are older than this version of tickwork needs."""

    code = "schema-outdated"

    _: KW_ONLY
    found: int
    needed: int


@message(
    "This version of tickwork knows tables up to version {known}; "
    "the tables need a release that knows version {compatible_from}.",
    why="A newer release has changed the tables.",
    fix="Upgrade tickwork in this environment; `tickwork --version` prints its version.",
)
class SchemaTooNew(StoreError):
    """A newer release has changed the tables, and this code cannot use them."""

    code = "schema-too-new"

    _: KW_ONLY
    known: int
    compatible_from: int


# ---------------------------------------------------------------- runs


class RunError(TickworkError):
    """An operation on a run that is not possible, or that failed."""

    code = "run"

    def __init__(self, run_id: str, what: str, *, why: str = "", fix: str = "") -> None:
        super().__init__(what, why=why, fix=fix)
        self.run_id = run_id


@message(
    "There is no run {run_id}.",
    why="It was never in this database, or the history no longer keeps it.",
    fix="Check the id and the database: `tickwork runs` lists runs.",
)
class RunNotFound(RunError, LookupError):
    """No run has this id, neither among the unfinished runs nor in the history."""

    code = "run-not-found"

    run_id: str


class AmbiguousRun(RunError, LookupError):
    """Several run ids start with this prefix. ``candidates`` are the first of them."""

    code = "ambiguous-run"

    def __init__(self, prefix: str, *, candidates: Iterable[str]) -> None:
        ids = tuple(candidates)
        super().__init__(
            prefix,
            f"The id {prefix!r} is ambiguous.",
            why=f"These ids start with it: {', '.join(ids)}.",
            fix="Write more characters of the id.",
        )
        self.prefix = prefix
        self.candidates = ids


@message(
    "The run {run_id} is not visible yet.",
    why="Its transaction is not committed, or was rolled back.",
    fix="Commit the transaction, then use this handle.",
)
class NotCommitted(RunNotFound):
    """A run that was dispatched in your transaction, which is not committed.

    No worker can see the run before the commit, so waiting for it would never end.
    """

    code = "not-committed"


@message(
    "The run {run_id} cannot be rescheduled: it is {status}.",
    why="Only a run that no worker has claimed can be rescheduled.",
    fix="Cancel it and dispatch a new run.",
)
class AlreadyClaimed(RunError):
    """A worker has claimed the run, so it can no longer be rescheduled."""

    code = "already-claimed"

    run_id: str
    _: KW_ONLY
    status: str


@message(
    "The run {run_id} is {source} and cannot become {target}.",
    why="docs/reference/statuses.md lists the allowed changes.",
)
class InvalidTransition(RunError):
    """A change of status that is not allowed."""

    code = "invalid-transition"

    run_id: str
    _: KW_ONLY
    source: str
    target: str


@message(
    "The run {run_id} no longer belongs to claim {token}.",
    why="The lease expired, and another worker took over the run.",
    fix="Stop the attempt. If this happens to healthy workers, use a longer lease.",
)
class LeaseLost(RunError):
    """This worker has lost the run: another worker has claimed or finished it."""

    code = "lease-lost"

    run_id: str
    _: KW_ONLY
    token: int


@message(
    "The attempt exceeded its timeout of {timeout}.",
    fix="Give the job a longer timeout, or split the work into several runs.",
)
class AttemptTimeout(RunError, TimeoutError):
    """An attempt took longer than the timeout of its job. It counts as failed."""

    code = "attempt-timeout"

    run_id: str
    _: KW_ONLY
    timeout: timedelta


@message(
    "The run {run_id} did not finish within {waited}; it is {status}.",
    fix="Wait longer, or check that a worker serves its queue: `tickwork status`.",
)
class WaitTimeout(RunError, TimeoutError):
    """The run did not finish while the caller waited. The run itself continues."""

    code = "wait-timeout"

    run_id: str
    _: KW_ONLY
    status: str
    waited: timedelta


@message(
    "The run {run_id} has no result: it is {status}.",
    why="{reason}",
    fix="`tickwork inspect {run_id}` shows every attempt.",
)
class RunUnsuccessful(RunError):
    """The caller reads the result of a run that finished without one."""

    code = "run-unsuccessful"

    run_id: str
    _: KW_ONLY
    status: str
    reason: str


@message(
    "The result of the run {run_id} has expired.",
    why="The run succeeded. Its job keeps results for a shorter time than runs.",
    fix='Read it earlier, or keep results longer: results="7d".',
)
class ResultExpired(RunError):
    """The result was deleted after the time that the option ``results`` of the job allows."""

    code = "result-expired"

    run_id: str


# ---------------------------------------------------------------- engines


class EngineError(TickworkError):
    """An engine, or the connection to it."""

    code = "engine"


@message(
    "The package {package!r} is not installed.",
    why="The engine {extra!r} needs it.",
    fix=_INSTALL,
)
class EngineMissing(EngineError, ImportError):
    """The package of an engine is not installed."""

    code = "engine-missing"

    package: str
    _: KW_ONLY
    extra: str


@message(
    "The engine {engine!r} at {address} does not answer.",
    why="{reason}",
    fix="Start it, or correct its address. Until then its runs wait; none is lost.",
)
class EngineUnavailable(EngineError, ConnectionError):
    """The broker or the cluster of an engine does not answer."""

    code = "engine-unavailable"

    engine: str
    address: str
    _: KW_ONLY
    reason: str

    def __post_init__(self) -> None:
        self.address = mask_url(self.address)
        super().__post_init__()


@message(
    "The {engine} engine of this process can start no attempt.",
    why="{reason}",
    fix="Start a new process. The runs of this one are given back; none is lost.",
)
class EngineBroken(EngineError):
    """An engine of this process can start no attempt. It has accepted none of the claims."""

    code = "engine-broken"

    engine: str
    _: KW_ONLY
    reason: str


class HandoverRejected(EngineError, ValueError):
    """A message about runs that were handed over cannot be executed by this process."""

    code = "handover-rejected"

    def __init__(self, reason: str, *, fix: str = "") -> None:
        super().__init__(
            "A message about runs that were handed over was rejected.",
            why=reason,
            fix=fix or "Only a worker of tickwork can send such a message.",
        )


# ---------------------------------------------------------------- the rest


class UndispatchedDraft(UserWarning):
    """A draft with options, such as ``job.delay(10)``, was dropped without ``dispatch``.

    Nothing was dispatched. The warning has the file and line that made the draft.
    """


class ScheduleNotFound(TickworkError, LookupError):
    """There is no schedule with this name for this tenant."""

    code = "schedule-not-found"

    def __init__(
        self, name: str, *, tenant: str = "", known: Iterable[str] = (), fix: str = ""
    ) -> None:
        names = sorted(known)
        super().__init__(
            f"There is no schedule {name!r}" + (f" for the tenant {tenant!r}." if tenant else "."),
            why=f"There {_is_or_are(names)} {_list_names('schedule', names)}." if names else "",
            fix=fix or suggest(name, names),
        )
        self.name = name
        self.tenant = tenant


class WorkerNotFound(TickworkError, LookupError):
    """No running worker has this id, or this host and process id; or several have."""

    code = "worker-not-found"

    def __init__(self, worker: str, *, known: Iterable[str] = ()) -> None:
        names = sorted(known)
        super().__init__(
            f"There is not exactly one worker {worker!r}.",
            why=f"There {_is_or_are(names)} {_list_names('worker', names)}."
            if names
            else "No worker is running.",
            fix="Pass its id, or HOST:PID: `tickwork status` lists the workers." if names else "",
        )
        self.worker = worker


class LockHeld(TickworkError):
    """Another process holds a named lock. The message names the process."""

    code = "lock-held"

    def __init__(self, name: str, *, host: str, pid: int, until: datetime) -> None:
        super().__init__(
            f"The lock {name!r} is held by process {pid} on {host}.",
            why=f"If that process is gone, the lock expires at {until.isoformat()}.",
            fix=f"Stop that process, or release its lock: tickwork unlock {quote(name)}",
        )
        self.name = name
        self.host = host
        self.pid = pid
        self.until = until


class StillDue(TickworkError):
    """``drain`` reached its limit and runs are still due."""

    code = "still-due"

    def __init__(self, *, limit: int, jobs: Iterable[str]) -> None:
        names = list(dict.fromkeys(jobs))
        super().__init__(
            f"drain() stopped after {limit:,} run{'' if limit == 1 else 's'}, and more are due.",
            why=f"The last runs were of {_list_names('job', names)}.",
            fix="If a handler dispatches its own job, give that dispatch a delay. Otherwise raise "
            "the limit.",
        )
        self.limit = limit
        self.jobs: tuple[str, ...] = tuple(names)


class AlreadyStarted(TickworkError, RuntimeError):
    """The worker of this app is running already."""

    code = "already-started"

    def __init__(self) -> None:
        super().__init__(
            "The worker of this app is running already.",
            fix="Call stop() first. For more throughput, start more processes: "
            "tickwork work --processes 4",
        )


@message(
    "The worker did not start: {hook} raised an exception.",
    why="{reason}",
    fix="Correct the cause, and start the worker again.",
)
class WorkerStartFailed(TickworkError):
    """A function of ``on_worker_start`` raised an exception. The worker did not start."""

    code = "worker-start-failed"

    hook: str
    reason: str


@message(
    "The idempotency key {key!r} belongs to another request.",
    why="Within a day, a key stands for one request with one content.",
    fix="Use a new key for each request, and the same key to repeat it.",
)
class KeyReused(TickworkError):
    """An idempotency key that was used for another request."""

    code = "key-reused"

    key: str


class DatabaseNotAllowed(TickworkError, AssertionError):
    """A test of Django used the database where Django itself refuses queries.

    Such a test may have no test database, and would change the real one.
    """

    code = "database-not-allowed"

    def __init__(self, alias: str, reason: str) -> None:
        names = sorted({"default", alias})
        declared = "{" + ", ".join(f'"{name}"' for name in names) + "}"
        super().__init__(
            f"This test may not use the database {alias!r}, in which tickwork stores its runs.",
            why=reason,
            fix=f"Set databases = {declared} on the test class, a TestCase or a "
            "TransactionTestCase. With pytest-django: "
            f"@pytest.mark.django_db(databases={names}). Without a database: testing.swap(app).",
        )
        self.alias = alias
        self.reason = reason


# ---------------------------------------------------------------- flows


class FlowError(TickworkError):
    """A call such as ``ctx.step`` that would not succeed at a later attempt either.

    The run fails permanently. ``tickwork retry`` repeats it after the code was changed.
    """

    code = "flow"


@message(
    "The name {name!r} is used twice in one attempt of run {run_id}.",
    why="A step is found again by its name, so each name is used once.",
    fix="Put what differs into the name: ctx.step(f'charge:{{order.id}}', ...). "
    "A sleep takes name='...'.",
)
class DuplicateStep(FlowError):
    """Two steps of one attempt have the same name."""

    code = "duplicate-step"

    name: str
    _: KW_ONLY
    run_id: str


@message(
    "{method} was called {where}.",
    why="Only the handler itself can continue after a step, in its own thread or task.",
    fix="Move the call to the handler.",
)
class NestedStep(FlowError):
    """A step inside of a step, or in another thread than that of the handler."""

    code = "nested-step"

    method: str
    where: str


@message(
    "ctx.{method}() was called in a coroutine.",
    why="Its event loop would stand still until the database has answered.",
    fix="Write `await ctx.aio.{method}(...)`.",
)
class BlockingStep(FlowError):
    """A coroutine called a step with the method for functions."""

    code = "blocking-step"

    method: str


@message("The step {name!r} {reason}", fix="{remedy}")
class InvalidStep(FlowError, ValueError):
    """The name or the value of a step cannot be stored, or its value cannot be read."""

    code = "invalid-step"

    name: str
    reason: str
    remedy: str = ""


@message(
    "The run {run_id} has stored {steps_max:,} steps, the most that a run can have.",
    why="All of them are read when the run resumes.",
    fix="Process several items in one step, or dispatch a run for each item.",
)
class StepLimit(FlowError):
    """A run stores more steps than a run can have."""

    code = "step-limit"

    run_id: str
    _: KW_ONLY
    steps_max: int


@message(
    "{method} needs the database, which the process of this attempt does not reach.",
    why="The job has engine={engine!r}.",
    fix="Use engine='dask' with workers that reach the database, or another engine.",
)
class FlowsUnavailable(FlowError):
    """The engine of the job makes attempts without a database: there are no steps."""

    code = "flows-unavailable"

    method: str
    engine: str


@message(
    "The event {event!r} did not come within {timeout}.",
    why="The handler waits for it with ctx.wait_for, and the time has passed.",
    fix="Catch the error to continue without the event, or wait longer.",
)
class EventTimeout(TickworkError, TimeoutError):
    """The event for which a run waits did not come in time."""

    code = "event-timeout"

    event: str
    _: KW_ONLY
    timeout: timedelta


@message(
    "The run {run_id} of the job {job!r} did not complete: it is {status}.",
    why="{reason}",
    fix="Catch the error to continue without its result. The retry of this run calls it again.",
)
class SubRunFailed(TickworkError):
    """A run that ``ctx.call`` or ``ctx.gather`` has called did not complete.

    ``run_id``, ``job``, ``status`` and ``reason`` are those of the run. ``others`` are the errors
    of the other runs of a gather that did not complete.
    """

    code = "sub-run-failed"

    run_id: str
    _: KW_ONLY
    job: str
    status: str
    reason: str
    others: "tuple[SubRunFailed, ...]" = ()


@message(
    "The call {name!r} has other arguments, or another job, than the run {run_id} that it made.",
    why="Its result must not go to another item.",
    fix="Give the changed call another name: ctx.call(job.named('...'), ...).",
)
class FlowChanged(FlowError):
    """The code calls something else under the name of a call that is stored."""

    code = "flow-changed"

    name: str
    _: KW_ONLY
    run_id: str


@message("The link is not accepted ({reason}).", why="{detail}", fix="{remedy}")
class CallbackRefused(TickworkError, ValueError):
    """A link of ``ctx.callback_url`` that answers no wait.

    ``reason`` is invalid (forged or changed), expired, used or ended (the run does not wait).
    """

    code = "callback-refused"

    reason: str
    detail: str
    remedy: str = "Ask the sender for a new link."


@message(
    "The step {name!r} failed at an earlier attempt: {kind}: {reason}",
    why="The handler caught the exception and continued, so that is the result of the step.",
)
class StepFailed(TickworkError):
    """A step whose failure was stored. It also has the class of the original exception.

    ``kind`` is the name of that class, ``reason`` its text. It has no other attributes of the
    original.
    """

    code = "step-failed"

    name: str
    _: KW_ONLY
    kind: str
    reason: str


class SuspendRun(BaseException):
    """Ends an attempt whose run sleeps or waits. Only tickwork raises it.

    It is not an ``Exception``, so that ``except Exception`` in a handler does not continue a run
    that is already suspended. The handler is called again at ``until``.
    """

    code: ClassVar[str] = "suspend-run"

    def __init__(
        self,
        reason: str,
        *,
        until: datetime,
        steps: Iterable[Any] = (),
        wait: Any = None,
        calls: Iterable[Any] = (),
        waits_for_runs: bool = False,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.until = until
        self.steps = tuple(steps)
        self.wait = wait
        self.calls = tuple(calls)
        self.waits_for_runs = waits_for_runs

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_suspension, (self.reason, self.__dict__)


def _rebuild_suspension(reason: str, values: dict[str, Any]) -> SuspendRun:
    return SuspendRun(**{"reason": reason, **values})


# ---------------------------------------------------------------- signals


class Signal(Exception):
    """A handler raises a signal to decide what happens to its own run."""

    code: ClassVar[str] = "signal"

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.args, self.__dict__)


class RetryLater(Signal):
    """This attempt failed. The run is retried.

    ``delay`` is a timedelta, a number of seconds or a text such as ``"5m"``. Without it, the
    job's retry policy sets the delay. A job without a policy waits 60 s, 120 s, 240 s and so on.
    """

    code = "retry-later"

    def __init__(self, delay: timedelta | float | str | None = None, reason: str = "") -> None:
        super().__init__(reason)
        self.delay: timedelta | str | None = None if delay is None else _as_delay(delay)


class Discard(Signal):
    """This run failed and is not tried again: it becomes ``failed_permanent``."""

    code = "discard"


class Snooze(Signal):
    """Postpone the run: it is due again after ``delay``. This attempt does not count.

    ``delay`` is a timedelta, a number of seconds or a text such as ``"5m"``.
    """

    code = "snooze"

    def __init__(self, delay: timedelta | float | str, reason: str = "") -> None:
        super().__init__(reason)
        self.delay: timedelta | str = _as_delay(delay)


# ---------------------------------------------------------------- wording


def _show(value: object) -> str:
    match value:
        case timedelta():
            text = _seconds(value)
        case datetime():
            text = value.isoformat()
        case _:
            text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _as_delay(delay: timedelta | float | str) -> timedelta | str:
    # The text is parsed later: this module imports nothing of the package.
    return delay if isinstance(delay, timedelta | str) else timedelta(seconds=delay)


def _seconds(length: timedelta) -> str:
    return f"{length.total_seconds():g}s"


def _list_names(noun: str, names: list[str], names_max: int = 20) -> str:
    if not names:
        return f"no {noun}s"
    more = len(names) - names_max
    tail = f" and {more} more" if more > 0 else ""
    plural = "" if len(names) == 1 else "s"
    return f"{len(names)} {noun}{plural}: {', '.join(names[:names_max])}{tail}"


def _name_runs(ids: tuple[str, ...], ids_max: int = 3) -> str:
    """Name the first runs, and count the others; empty without runs."""
    if not ids:
        return ""
    more = f" and {len(ids) - ids_max:,} more" if len(ids) > ids_max else ""
    return f"the run{'' if len(ids) == 1 else 's'} {', '.join(ids[:ids_max])}{more}"


def _is_or_are(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


def suggest(name: object, names: Iterable[str]) -> str:
    """Return "Did you mean ...?" with the closest name; empty if none is close."""
    from difflib import get_close_matches  # noqa: PLC0415  # few processes need it

    close = get_close_matches(str(name), names, n=1)
    return f"Did you mean {close[0]!r}?" if close else ""
