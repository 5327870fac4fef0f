"""All exceptions of tickwork, in two trees.

    TickworkError
    ├── DefinitionError              the program defines something invalid
    │   ├── InvalidSchedule          (ValueError) a rule that is invalid or never fires
    │   │   └── CronError            a cron expression that does not parse
    │   ├── InvalidOption            (ValueError) an option with an invalid value
    │   │   └── UnknownOption        an option that does not exist
    │   ├── InvalidDuration          (ValueError) a value that is not a length of time
    │   ├── NaiveDatetime            (ValueError) a datetime without a time zone
    │   ├── DuplicateDefinition      two different definitions with the same name
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
    │   │   ├── AccessDenied         the server refuses the user, password or database
    │   │   ├── StoreDamaged         an SQLite file that is damaged, or no database
    │   │   ├── StoreReplaced        an SQLite file that was deleted or replaced
    │   │   ├── StoreReadOnly        a standby, or a server that is set to read-only
    │   │   └── OutcomeUnknown       the connection was lost during COMMIT
    │   ├── ReadTimeout              (TimeoutError) a read took longer than its limit
    │   ├── StoreBusy                (TimeoutError) another connection holds the lock
    │   ├── DriverMissing            (ImportError) a driver is not installed
    │   ├── ServerTooOld             the server's version is not supported
    │   ├── NetworkFileSystem        SQLite on a file system without reliable locks
    │   ├── WrongConnection          a connection that the store cannot use
    │   ├── SchemaMissing            the tables do not exist
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
    ├── EngineError                  an engine outside of this process
    │   ├── EngineMissing            (ImportError) the package of an engine is not installed
    │   ├── EngineUnavailable        (ConnectionError) its broker or cluster does not answer
    │   └── HandoverRejected         (ValueError) a message that cannot be executed here
    ├── ScheduleNotFound             (LookupError) there is no such schedule
    ├── WorkerNotFound               (LookupError) there is no such worker, or several
    ├── LockHeld                     another process holds a named lock
    ├── StillDue                     drain() reached its limit
    ├── ExtraMissing                 (ImportError) a package that an integration needs
    ├── AlreadyStarted               (RuntimeError) this app's worker is running
    ├── WorkerStartFailed            a function of on_worker_start raised an exception
    └── KeyReused                    an idempotency key of another request

    Signal                           not an error: a handler's request about its own run
    ├── RetryLater                   failed; try again
    ├── Discard                      failed; never try again
    └── Snooze                       not now; this attempt does not count

Each error states what happened, why, and what to do about it. The values in a message are
also attributes. ``code`` is stable: it has a section in ``docs/reference/errors.md``.

Signals are not errors, so that ``except TickworkError`` around a dispatch inside a handler
does not catch a signal by accident.
"""

# ruff: noqa: N818  # these names read well without the suffix Error

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from shlex import quote
from typing import Any, ClassVar
from urllib.parse import unquote


class TickworkError(Exception):
    """Base of all errors. It states what happened, why, and what to do about it."""

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


def _restore(kind: type[Exception], args: tuple[Any, ...], facts: dict[str, Any]) -> Exception:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(facts)
    return error


# ---------------------------------------------------------------- definitions


class DefinitionError(TickworkError):
    """The program defines something that is not valid."""

    code = "definition"


class InvalidSchedule(DefinitionError, ValueError):
    """A schedule rule that is not valid, or that never fires."""

    code = "invalid-schedule"


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

    def __init__(self, text: object, reason: str) -> None:
        super().__init__(
            f"{_show(text)} is not a length of time: {reason}",
            fix="Write a number and a unit, such as '90s', '5m', '1h30m' or '2 days'.",
        )
        self.text = text


class NaiveDatetime(DefinitionError, ValueError):
    """A datetime without a time zone."""

    code = "naive-datetime"

    def __init__(self, moment: object) -> None:
        super().__init__(
            f"{moment} has no time zone.",
            why="Without a time zone it means a different moment on every machine.",
            fix="Use datetime.now(UTC), or datetime(..., tzinfo=ZoneInfo('Europe/Berlin')).",
        )
        self.moment = moment


class DuplicateDefinition(DefinitionError):
    """Two different definitions with the same name. The message names both places."""

    code = "duplicate-definition"

    def __init__(self, kind: str, name: str, *, first: str, second: str) -> None:
        super().__init__(
            f"The {kind} {name!r} has two different definitions.",
            why=f"First definition: {first}. Second definition: {second}.",
            fix="Rename one of them, or make them equal.",
        )
        self.kind = kind
        self.name = name
        self.first = first
        self.second = second


class JobNotFound(DefinitionError, LookupError):
    """This process has no job with this name."""

    code = "job-not-found"

    def __init__(self, name: str, *, known: Iterable[str]) -> None:
        names = sorted(known)
        super().__init__(
            f"No job named {name!r} is registered in this process.",
            why=f"This process has {_list_names('job', names)}.",
            fix=suggest(name, names)
            or "Load the module that defines it (tickwork -a your.module:app work). If another "
            f"program defines it, use app.remote({name!r}).",
        )
        self.name = name


class HandlerNotFound(DefinitionError, LookupError):
    """A handler path that does not lead to a function or a handler class."""

    code = "handler-not-found"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(
            f"The handler {path!r} was not found.",
            why=reason,
            fix="Write it as 'package.module:Name', where Name is a function or a class "
            "with handle() or execute().",
        )
        self.path = path
        self.reason = reason


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
        found = tuple(faults)
        super().__init__(
            f"{source} has {len(found)} error{'' if len(found) == 1 else 's'}.",
            why="\n".join(f"- {fault}" for fault in found),
        )
        self.source = source
        self.faults = found


# ---------------------------------------------------------------- arguments and payloads


class ArgumentError(TickworkError, TypeError):
    """Arguments that do not match the handler's signature.

    The caller of dispatch() gets this error. A run that was stored with an older signature
    fails with it.
    """

    code = "wrong-arguments"

    def __init__(self, job: str, reason: str, *, signature: str = "") -> None:
        super().__init__(
            f"Wrong arguments for the job {job!r}: {reason}",
            why=f"The handler's parameters are {signature}." if signature else "",
            fix="Pass the handler's own arguments. Options such as at, delay and queue are set "
            "before dispatch().",
        )
        self.job = job
        self.reason = reason
        self.signature = signature


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


class PayloadTooLarge(PayloadError):
    """A payload that is larger than the limit."""

    code = "payload-too-large"

    def __init__(self, size: int, *, size_max: int) -> None:
        super().__init__(
            f"The payload has at least {size:,} bytes. The limit is {size_max:,} bytes.",
            why="The database reads the payload for every attempt of the run.",
            fix="Store the data elsewhere and pass its key, or raise payload_max.",
        )
        self.size = size
        self.size_max = size_max


class PayloadUnreadable(PayloadError):
    """A stored payload that is not JSON, or has a tag that this version does not know."""

    code = "payload-unreadable"

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"The stored payload cannot be read: {reason}",
            why="Another program or a newer version of tickwork wrote it.",
            fix="Upgrade this process to the newest version that writes to the database.",
        )
        self.reason = reason


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


class InvalidStoreUrl(StoreError, ValueError):
    """A URL that is not a store URL. The message does not show its password."""

    code = "invalid-store-url"

    def __init__(self, url: str, reason: str) -> None:
        reason = _hide_password(reason, url)
        super().__init__(
            f"{mask_url(url)!r} is not a valid store URL: {reason}",
            fix="Use sqlite:///jobs.db, postgresql://user@host/db or mysql://user@host/db.",
        )
        self.url: str = mask_url(url)
        self.reason = reason


class StoreUnavailable(StoreError, ConnectionError):
    """The database does not answer. Workers retry; callers get this error."""

    code = "store-unavailable"
    is_permanent: ClassVar[bool] = False
    """Whether this process cannot use the store any more, however often it retries."""

    def __init__(self, url: str, reason: str) -> None:
        reason = _hide_password(reason, url)
        super().__init__(
            f"The store at {mask_url(url)} cannot be reached.",
            why=reason,
            fix="Check that the server runs and that the URL is right: `tickwork doctor`.",
        )
        self.url: str = mask_url(url)
        self.reason = reason


class AccessDenied(StoreUnavailable):
    """The server answers, and refuses the user, the password or the database of the URL."""

    code = "access-denied"

    def __init__(self, url: str, reason: str) -> None:
        reason = _hide_password(reason, url)
        StoreError.__init__(
            self,
            f"The server of {mask_url(url)} refused the connection.",
            why=reason,
            fix="Check the user, the password and the name of the database in the URL.",
        )
        self.url: str = mask_url(url)
        self.reason = reason


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


class StoreReadOnly(StoreUnavailable):
    """The server accepts no changes: it is a standby, a replica, or set to read-only."""

    code = "store-read-only"

    def __init__(self, url: str, reason: str) -> None:
        StoreError.__init__(
            self,
            f"The store at {mask_url(url)} is read-only.",
            why=f"It is a standby, or set to read-only: {reason}",
            fix="Use the URL of the primary server. With several hosts in a PostgreSQL URL, add "
            "target_session_attrs=read-write.",
        )
        self.url: str = mask_url(url)
        self.reason = reason


class OutcomeUnknown(StoreUnavailable):
    """The connection was lost during COMMIT: the change may be stored or not."""

    code = "outcome-unknown"

    def __init__(self, url: str, reason: str) -> None:
        reason = _hide_password(reason, url)
        StoreError.__init__(
            self,
            f"The connection to {mask_url(url)} was lost during COMMIT: "
            "the change may be stored or not.",
            why=reason,
            fix="Check whether the change is stored before you repeat it. A dispatch with unique() "
            "can be repeated safely.",
        )
        self.url: str = mask_url(url)
        self.reason = reason


class ReadTimeout(StoreError, TimeoutError):
    """A read took longer than its caller allows, and the database has ended it."""

    code = "read-timeout"

    def __init__(self, url: str, *, limit: timedelta) -> None:
        super().__init__(
            f"The store at {mask_url(url)} took longer than {_seconds(limit)} to answer.",
            why="The dashboard limits its reads, so that a page cannot slow down the workers.",
            fix="Narrow the filters of the page. If every page is slow: `tickwork doctor`.",
        )
        self.url: str = mask_url(url)
        self.limit = limit


class StoreBusy(StoreError, TimeoutError):
    """Another connection held the lock of the database for too long."""

    code = "store-busy"

    def __init__(self, url: str, *, waited: timedelta) -> None:
        what = f"Another connection locked the store at {mask_url(url)} for {_seconds(waited)}."
        why = "Only one connection at a time can write." if url.startswith("sqlite") else ""
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
        return self.url.startswith("sqlite")


class DriverMissing(StoreError, ImportError):
    """The driver of a database is not installed."""

    code = "driver-missing"

    def __init__(self, driver: str, *, extra: str) -> None:
        super().__init__(
            f"The driver {driver!r} is not installed.",
            why=f"A {extra} store needs it.",
            fix=f"In a clone of tickwork: pip install '.[{extra}]'. With its wheel: "
            f"pip install 'tickwork-VERSION-py3-none-any.whl[{extra}]'.",
        )
        self.driver = driver
        self.extra = extra


class ExtraMissing(TickworkError, ImportError):
    """A package that an integration needs is not installed."""

    code = "extra-missing"

    def __init__(self, package: str, *, extra: str) -> None:
        super().__init__(
            f"The package {package!r} is not installed.",
            why=f"The part of tickwork with the extra {extra!r} needs it.",
            fix=f"In a clone of tickwork: pip install '.[{extra}]'. With its wheel: "
            f"pip install 'tickwork-VERSION-py3-none-any.whl[{extra}]'.",
        )
        self.package = package
        self.extra = extra


class ServerTooOld(StoreError):
    """The version of the database server is not supported."""

    code = "server-too-old"

    def __init__(self, server: str, *, found: str, needed: str) -> None:
        super().__init__(
            f"{server} {found} is too old; tickwork needs {needed} or newer.",
            why="Older versions have no SKIP LOCKED, or lock more rows than they should.",
            fix=f"Upgrade {server}.",
        )
        self.server = server
        self.found = found
        self.needed = needed


class NetworkFileSystem(StoreError):
    """An SQLite file on a network file system, where file locks are not reliable."""

    code = "network-file-system"

    def __init__(self, path: str, *, file_system: str) -> None:
        super().__init__(
            f"{path} is on {file_system}, a network file system.",
            why="File locks are not reliable there: two workers could claim the same run.",
            fix="Put the file on a local disk, or use PostgreSQL or MySQL.",
        )
        self.path = path
        self.file_system = file_system


class WrongConnection(StoreError):
    """A caller's connection that this store cannot use.

    It has the wrong type, or it is connected to another database.
    """

    code = "wrong-connection"

    def __init__(self, url: str, reason: str, *, takes: str) -> None:
        super().__init__(
            f"The store at {mask_url(url)} cannot use this connection.",
            why=reason,
            fix=f"Pass {takes}.",
        )
        self.url: str = mask_url(url)
        self.reason = reason
        self.takes = takes


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


class SchemaOutdated(StoreError):
    """The tables are older than this version of tickwork needs."""

    code = "schema-outdated"

    def __init__(self, *, found: int, needed: int) -> None:
        super().__init__(
            f"The tables have version {found}; this version of tickwork needs {needed}.",
            fix="Run `tickwork install`. Workers of the previous release can run meanwhile.",
        )
        self.found = found
        self.needed = needed


class SchemaTooNew(StoreError):
    """A newer release has changed the tables, and this code cannot use them."""

    code = "schema-too-new"

    def __init__(self, *, known: int, compatible_from: int) -> None:
        super().__init__(
            f"This version of tickwork knows tables up to version {known}; "
            f"the tables need a release that knows version {compatible_from}.",
            why="A newer release has changed the tables.",
            fix="Upgrade tickwork in this environment.",
        )
        self.known = known
        self.compatible_from = compatible_from


# ---------------------------------------------------------------- runs


class RunError(TickworkError):
    """An operation on a run that is not possible, or that failed."""

    code = "run"

    def __init__(self, run_id: str, what: str, *, why: str = "", fix: str = "") -> None:
        super().__init__(what, why=why, fix=fix)
        self.run_id = run_id


class RunNotFound(RunError, LookupError):
    """No run has this id, neither among the unfinished runs nor in the history."""

    code = "run-not-found"

    def __init__(self, run_id: str) -> None:
        super().__init__(
            run_id,
            f"There is no run {run_id}.",
            why="It was never in this database, or the history no longer keeps it.",
            fix="Check the id and the database: `tickwork runs` lists runs.",
        )


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


class NotCommitted(RunNotFound):
    """A run that was dispatched in your transaction, which is not committed.

    No worker can see the run before the commit, so waiting for it would never end.
    """

    code = "not-committed"

    def __init__(self, run_id: str) -> None:
        RunError.__init__(
            self,
            run_id,
            f"The run {run_id} is not visible yet.",
            why="Its transaction is not committed, or was rolled back.",
            fix="Commit the transaction, then use this handle.",
        )


class AlreadyClaimed(RunError):
    """A worker has claimed the run, so it can no longer be rescheduled."""

    code = "already-claimed"

    def __init__(self, run_id: str, *, status: str) -> None:
        super().__init__(
            run_id,
            f"The run {run_id} cannot be rescheduled: it is {status}.",
            why="Only a run that no worker has claimed can be rescheduled.",
            fix="Cancel it and dispatch a new run.",
        )
        self.status = status


class InvalidTransition(RunError):
    """A change of status that is not allowed."""

    code = "invalid-transition"

    def __init__(self, run_id: str, *, source: str, target: str) -> None:
        super().__init__(
            run_id,
            f"The run {run_id} is {source} and cannot become {target}.",
            why="docs/reference/statuses.md lists the allowed changes.",
        )
        self.source = source
        self.target = target


class LeaseLost(RunError):
    """This worker has lost the run: another worker has claimed or finished it."""

    code = "lease-lost"

    def __init__(self, run_id: str, *, token: int) -> None:
        super().__init__(
            run_id,
            f"The run {run_id} no longer belongs to claim {token}.",
            why="The lease expired, and another worker took over the run.",
            fix="Stop the attempt. If this happens to healthy workers, use a longer lease.",
        )
        self.token = token


class AttemptTimeout(RunError, TimeoutError):
    """An attempt took longer than the timeout of its job. It counts as failed."""

    code = "attempt-timeout"

    def __init__(self, run_id: str, *, timeout: timedelta) -> None:
        super().__init__(
            run_id,
            f"The attempt exceeded its timeout of {_seconds(timeout)}.",
            fix="Give the job a longer timeout, or split the work into several runs.",
        )
        self.timeout = timeout


class WaitTimeout(RunError, TimeoutError):
    """The run did not finish while the caller waited. The run itself continues."""

    code = "wait-timeout"

    def __init__(self, run_id: str, *, status: str, waited: timedelta) -> None:
        super().__init__(
            run_id,
            f"The run {run_id} did not finish within {_seconds(waited)}; it is {status}.",
            fix="Wait longer, or check that a worker serves its queue: `tickwork status`.",
        )
        self.status = status
        self.waited = waited


class RunUnsuccessful(RunError):
    """The caller reads the result of a run that finished without one."""

    code = "run-unsuccessful"

    def __init__(self, run_id: str, *, status: str, reason: str) -> None:
        super().__init__(
            run_id,
            f"The run {run_id} has no result: it is {status}.",
            why=reason,
            fix=f"`tickwork inspect {run_id}` shows every attempt.",
        )
        self.status = status
        self.reason = reason


class ResultExpired(RunError):
    """The result was deleted after the time that the option ``results`` of the job allows."""

    code = "result-expired"

    def __init__(self, run_id: str) -> None:
        super().__init__(
            run_id,
            f"The result of the run {run_id} has expired.",
            why="The run succeeded. Its job keeps results for a shorter time than runs.",
            fix='Read it earlier, or keep results longer: results="7d".',
        )


# ---------------------------------------------------------------- engines


class EngineError(TickworkError):
    """An engine outside of this process, or the connection to it."""

    code = "engine"


class EngineMissing(EngineError, ImportError):
    """The package of an engine is not installed."""

    code = "engine-missing"

    def __init__(self, package: str, *, extra: str) -> None:
        super().__init__(
            f"The package {package!r} is not installed.",
            why=f"The engine {extra!r} needs it.",
            fix=f"In a clone of tickwork: pip install '.[{extra}]'. With its wheel: "
            f"pip install 'tickwork-VERSION-py3-none-any.whl[{extra}]'.",
        )
        self.package = package
        self.extra = extra


class EngineUnavailable(EngineError, ConnectionError):
    """The broker or the cluster of an engine does not answer."""

    code = "engine-unavailable"

    def __init__(self, engine: str, address: str, *, reason: str) -> None:
        super().__init__(
            f"The engine {engine!r} at {mask_url(address)} does not answer.",
            why=reason,
            fix="Start it, or correct its address. Until then its runs wait; none is lost.",
        )
        self.engine = engine
        self.address = mask_url(address)


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

    Nothing was enqueued. The warning has the file and line that made the draft.
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


class WorkerStartFailed(TickworkError):
    """A function of ``on_worker_start`` raised an exception. The worker did not start."""

    code = "worker-start-failed"

    def __init__(self, hook: str, reason: str) -> None:
        super().__init__(
            f"The worker did not start: {hook} raised an exception.",
            why=reason,
            fix="Correct the cause, and start the worker again.",
        )
        self.hook = hook


class KeyReused(TickworkError):
    """An idempotency key that was used for another request."""

    code = "key-reused"

    def __init__(self, key: str) -> None:
        super().__init__(
            f"The idempotency key {key!r} belongs to another request.",
            why="Within a day, a key stands for one request with one content.",
            fix="Use a new key for each request, and the same key to repeat it.",
        )
        self.key = key


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


_OPTION = re.compile(r"(?<=password=)[^&]*|(?<=passwd=)[^&]*", re.IGNORECASE)
_NOT_A_PORT = re.compile(r":(?!\d*(?:,|$))")
_UNESCAPED = re.compile(r"[/@?#]")


def mask_url(url: str) -> str:
    """Replace the password in a URL, for messages and logs.

    >>> mask_url("postgresql://app:s3cret@db.example.org/jobs")
    'postgresql://app:***@db.example.org/jobs'
    """
    start, end = _find_password(url)
    if start < end:
        url = f"{url[:start]}***{url[end:]}"
    return _OPTION.sub("***", url)


def _find_password(url: str) -> tuple[int, int]:
    """Return where the password of a URL begins and ends.

    In an odd URL, hiding too much is better than showing too much: a scheme may be mistyped, and a
    character of the password not escaped.
    """
    begin = url.find("//") + 2 if "//" in url else 0
    authority, path = (_index_of(marks, url, begin) for marks in ("/?#", "?#"))
    if begin and authority == begin:
        return 0, 0  # a file
    colon = url.find(":", begin)
    at = url.rfind("@", begin, path)
    if at < 0 and not url.startswith("[", begin):
        # The password has a ? or #, or the @ after it is escaped or missing.
        is_cut = url[authority : authority + 1] in {"?", "#"} and "@" in url[authority:]
        if is_cut or _NOT_A_PORT.search(url[begin:authority]):
            at = max(url.rfind("@"), authority)
    if not begin <= colon < at:
        return 0, 0
    return colon + 1, at


def _index_of(marks: str, text: str, begin: int) -> int:
    """The first index of one of these characters, or the end."""
    found = (text.find(mark, begin) for mark in marks)
    return min((index for index in found if index >= 0), default=len(text))


def _hide_password(reason: str, url: str) -> str:
    """Remove the password of a URL from the text of a driver."""
    start, end = _find_password(url)
    password = url[start:end]
    if _UNESCAPED.search(password):
        return (
            "The password in the URL has a character that must be escaped: %40 for @, %2F for /, "
            "%3F for ?, %23 for #."
        )
    for text in filter(None, {password, unquote(password)}):
        reason = re.sub(re.escape(text), "***", reason, flags=re.IGNORECASE)
    return reason


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


def _is_or_are(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


def suggest(name: object, names: Iterable[str]) -> str:
    """Return "Did you mean ...?" with the closest name; empty if none is close."""
    from difflib import get_close_matches  # noqa: PLC0415  # few processes need it

    close = get_close_matches(str(name), names, n=1)
    return f"Did you mean {close[0]!r}?" if close else ""
