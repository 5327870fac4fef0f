"""Every exception of tickwork, in two trees.

    TickworkError
    ├── DefinitionError              the program describes something impossible
    │   ├── InvalidSchedule          (ValueError) a rule that cannot be, or never fires
    │   │   └── CronError            a cron expression that does not parse
    │   ├── InvalidOption            (ValueError) an option outside its limits
    │   ├── InvalidDuration          (ValueError) a text that is no length of time
    │   ├── NaiveDatetime            (ValueError) a datetime that is no instant
    │   ├── DuplicateDefinition      two different things under one name
    │   ├── JobNotFound              (LookupError) a job this process does not know
    │   ├── HandlerNotFound          (LookupError) a path that leads to no handler
    │   ├── HandlerNotAllowed        a path outside the app's handler_paths
    │   └── ConfigError              (ValueError) a configuration, with all its faults
    ├── ArgumentError                (TypeError) arguments that the handler does not take
    ├── PayloadError                 (ValueError) a value that cannot travel
    │   ├── NotSerializable          it has no JSON form
    │   ├── PayloadTooLarge          it is over the size limit
    │   └── PayloadUnreadable        the stored text cannot be read back
    ├── StoreError                   the database, or the way to it
    │   ├── InvalidStoreUrl          (ValueError) a URL that names no store
    │   ├── StoreUnavailable         (ConnectionError) it does not answer
    │   │   └── OutcomeUnknown       it went after COMMIT was sent
    │   ├── StoreBusy                (TimeoutError) it answers, but others hold the lock
    │   ├── DriverMissing            (ImportError) an extra is not installed
    │   ├── ServerTooOld             it lacks what tickwork needs
    │   ├── NetworkFileSystem        SQLite where its locks do not hold
    │   ├── WrongConnection          a caller's connection that cannot be used
    │   ├── SchemaMissing            the tables are not there
    │   ├── SchemaOutdated           the tables are older than this code
    │   └── SchemaTooNew             this code is older than the tables allow
    ├── RunError                     one run, and what was asked of it
    │   ├── RunNotFound              (LookupError) there is no such run
    │   │   └── NotCommitted         nobody sees it before you commit
    │   ├── AmbiguousRun             (LookupError) several ids begin like this
    │   ├── AlreadyClaimed           too late to reschedule it
    │   ├── InvalidTransition        a step that its status does not allow
    │   ├── LeaseLost                another worker holds it now
    │   ├── AttemptTimeout           (TimeoutError) an attempt took too long
    │   ├── WaitTimeout              (TimeoutError) it did not finish while we waited
    │   └── RunFailed                its result was asked for, and there is none
    ├── ScheduleNotFound             (LookupError) there is no such schedule
    ├── LockHeld                     a named lock has another owner
    ├── StillDue                     a test ran what is due, and it never came to an end
    └── AlreadyStarted               (RuntimeError) this app's worker is running

    Signal                           not an error: a handler's word on its own run
    ├── RetryLater                   failed; try again
    ├── Discard                      failed; never try again
    └── Snooze                       not now; this attempt does not count

Each error says what happened, why, and what to do about it. Facts are attributes, not
only words, and ``code`` is stable: it has a section in ``docs/reference/errors.md``.

Signals stand apart so that ``except TickworkError`` around a dispatch, inside a handler,
does not swallow what that handler says about itself.
"""

# ruff: noqa: N818  # a name that says what is wrong needs no suffix that says that it is

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from difflib import get_close_matches
from shlex import quote
from typing import Any, ClassVar


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


def _restore(kind: type[Exception], args: tuple[Any, ...], facts: dict[str, Any]) -> Exception:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(facts)
    return error


# ---------------------------------------------------------------- definitions


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


class InvalidOption(DefinitionError, ValueError):
    """An option of a job, a schedule or a worker whose value is outside its limits."""

    code = "invalid-option"

    def __init__(self, option: str, value: object, reason: str, *, fix: str = "") -> None:
        super().__init__(f"{option}={_shown(value)} cannot be: {reason}", fix=fix)
        self.option = option
        self.value = value
        self.reason = reason


class InvalidDuration(DefinitionError, ValueError):
    """A text or number that was meant as a length of time, and is none."""

    code = "invalid-duration"

    def __init__(self, text: object, reason: str) -> None:
        super().__init__(
            f"{_shown(text)} is not a length of time: {reason}",
            fix="Write a number and a unit, such as '90s', '5m', '1h30m' or '2 days'.",
        )
        self.text = text


class NaiveDatetime(DefinitionError, ValueError):
    """A datetime without a time zone, where an instant is needed."""

    code = "naive-datetime"

    def __init__(self, moment: object) -> None:
        super().__init__(
            f"{moment} has no time zone.",
            why="Without one it names a different instant on every machine.",
            fix="Use datetime.now(UTC), or datetime(..., tzinfo=ZoneInfo('Europe/Berlin')).",
        )
        self.moment = moment


class DuplicateDefinition(DefinitionError):
    """Two different definitions under one name; the message shows both places."""

    code = "duplicate-definition"

    def __init__(self, kind: str, name: str, *, first: str, second: str) -> None:
        super().__init__(
            f"Two different definitions of the {kind} {name!r}.",
            why=f"The first is at {first}, the second at {second}.",
            fix="Rename one of them, or make them equal.",
        )
        self.kind = kind
        self.name = name
        self.first = first
        self.second = second


class JobNotFound(DefinitionError, LookupError):
    """A name for which this process has no job."""

    code = "job-not-found"

    def __init__(self, name: str, *, known: Iterable[str]) -> None:
        names = sorted(known)
        super().__init__(
            f"No job named {name!r} is registered in this process.",
            why=f"It knows {_listed('job', names)}.",
            fix=_guess(name, names)
            or "Pass the module that defines it (tickwork -a your.module:app work), or say "
            f"app.remote({name!r}) if another program does.",
        )
        self.name = name


class HandlerNotFound(DefinitionError, LookupError):
    """A handler path that leads to nothing callable."""

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
    """A handler path outside the packages from which rows may be imported.

    A row in a database must not be able to import just any module.
    """

    code = "handler-not-allowed"

    def __init__(self, path: str, *, allowed: Iterable[str]) -> None:
        prefixes = tuple(allowed)
        super().__init__(
            f"The handler {path!r} may not be imported because a row says so.",
            why=f"Allowed are names below: {', '.join(prefixes) or 'nothing at all'}.",
            fix="Add its package to handler_paths, if you trust who writes to the database.",
        )
        self.path = path
        self.allowed = prefixes


class ConfigError(DefinitionError, ValueError):
    """A configuration that cannot be used. It lists every fault, not only the first."""

    code = "config"

    def __init__(self, source: str, faults: Iterable[str]) -> None:
        found = tuple(faults)
        super().__init__(
            f"{source} has {len(found)} fault{'' if len(found) == 1 else 's'}.",
            why="\n".join(f"- {fault}" for fault in found),
        )
        self.source = source
        self.faults = found


# ---------------------------------------------------------------- arguments and payloads


class ArgumentError(TickworkError, TypeError):
    """Arguments that do not fit the handler's signature.

    Raised where the wrong call is made; for a run that was stored under an older
    signature, it is the run's error.
    """

    code = "wrong-arguments"

    def __init__(self, job: str, reason: str, *, signature: str = "") -> None:
        super().__init__(
            f"The job {job!r} cannot be called like this: {reason}",
            why=f"Its handler takes {signature}." if signature else "",
            fix="Pass exactly the handler's own arguments; at, delay, queue and the like are "
            "said before dispatch().",
        )
        self.job = job
        self.reason = reason
        self.signature = signature


class PayloadError(TickworkError, ValueError):
    """Arguments or a result that cannot be stored, or cannot be read back."""

    code = "payload"


class NotSerializable(PayloadError):
    """A value without an exact JSON form. ``path`` says where in the payload it is."""

    code = "not-serializable"

    def __init__(self, path: str, reason: str, *, fix: str = "") -> None:
        super().__init__(f"The value at {path} cannot be stored: {reason}", fix=fix)
        self.path = path
        self.reason = reason


class PayloadTooLarge(PayloadError):
    """A payload over the size limit."""

    code = "payload-too-large"

    def __init__(self, size: int, *, size_max: int) -> None:
        super().__init__(
            f"The payload has {size:,} bytes or more; the limit is {size_max:,}.",
            why="Payloads are read and written for every attempt of a run.",
            fix="Store the data elsewhere, and pass its key.",
        )
        self.size = size
        self.size_max = size_max


class PayloadUnreadable(PayloadError):
    """A stored payload that is no JSON, or holds a tag this version does not know."""

    code = "payload-unreadable"

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"The stored payload cannot be read: {reason}",
            why="Something else than tickwork wrote it, or a newer version did.",
        )
        self.reason = reason


# ---------------------------------------------------------------- stores


class StoreError(TickworkError):
    """The database, or the way to it, is not as it must be."""

    code = "store"


class InvalidStoreUrl(StoreError, ValueError):
    """A URL that names no store. Passwords in it are masked."""

    code = "invalid-store-url"

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(
            f"{masked(url)!r} names no store: {reason}",
            fix="Use sqlite:///jobs.db, postgresql://user@host/db or mysql://user@host/db.",
        )
        self.url: str = masked(url)
        self.reason = reason


class StoreUnavailable(StoreError, ConnectionError):
    """The database does not answer. Workers wait and try again; callers see this."""

    code = "store-unavailable"

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(
            f"The store at {masked(url)} cannot be reached.",
            why=reason,
            fix="See that the server is up and the URL is right; `tickwork doctor` looks closer.",
        )
        self.url: str = masked(url)
        self.reason = reason


class OutcomeUnknown(StoreUnavailable):
    """The connection went after COMMIT was sent: it may have been carried out, or not.

    Whoever repeats it must say so: ``is_repeat=True``.
    """

    code = "outcome-unknown"

    def __init__(self, url: str, reason: str) -> None:
        StoreError.__init__(
            self,
            f"The connection to {masked(url)} went while a change was being committed.",
            why=reason,
            fix="Repeat it with is_repeat=True: what has landed is not done again.",
        )
        self.url: str = masked(url)
        self.reason = reason


class StoreBusy(StoreError, TimeoutError):
    """Others held the database's lock for longer than we were ready to wait."""

    code = "store-busy"

    def __init__(self, url: str, *, waited: timedelta) -> None:
        super().__init__(
            f"The store at {masked(url)} was locked by others for {_seconds(waited)}.",
            why="One writer at a time may change it, and none let go.",
            fix="Look for a transaction that stays open: `tickwork doctor` names what it can see.",
        )
        self.url: str = masked(url)
        self.waited = waited

    @property
    def is_for_everyone(self) -> bool:
        """Whether nobody at all can write meanwhile: a file has one lock for all writers."""
        return self.url.startswith("sqlite")


class DriverMissing(StoreError, ImportError):
    """A store needs a driver that is not installed."""

    code = "driver-missing"

    def __init__(self, driver: str, *, extra: str) -> None:
        super().__init__(
            f"The driver {driver!r} is not installed.",
            why=f"{extra} stores need it; tickwork itself does not.",
            fix=f"pip install 'tickwork[{extra}]'",
        )
        self.driver = driver
        self.extra = extra


class ServerTooOld(StoreError):
    """A database server without something that tickwork's promises rest on."""

    code = "server-too-old"

    def __init__(self, server: str, *, found: str, needed: str) -> None:
        super().__init__(
            f"{server} {found} is too old; tickwork needs {needed} or newer.",
            why="Older versions lack SKIP LOCKED, or lock too much with it.",
            fix=f"Upgrade {server}.",
        )
        self.server = server
        self.found = found
        self.needed = needed


class NetworkFileSystem(StoreError):
    """An SQLite file on a network file system, where its locks do not hold."""

    code = "network-file-system"

    def __init__(self, path: str, *, file_system: str) -> None:
        super().__init__(
            f"{path} lies on {file_system}, a network file system.",
            why="SQLite's locks do not hold there: two workers could take the same run.",
            fix="Put the file on a local disk, or use PostgreSQL or MySQL.",
        )
        self.path = path
        self.file_system = file_system


class WrongConnection(StoreError):
    """A caller's connection on which this store cannot work.

    It is of another kind, or it leads elsewhere than to this store's tables.
    """

    code = "wrong-connection"

    def __init__(self, url: str, reason: str, *, takes: str) -> None:
        super().__init__(
            f"The store at {masked(url)} cannot be used through this connection.",
            why=reason,
            fix=f"It takes {takes}.",
        )
        self.url: str = masked(url)
        self.reason = reason
        self.takes = takes


class SchemaMissing(StoreError):
    """tickwork's tables are not in this database."""

    code = "schema-missing"

    def __init__(self, url: str, *, is_within: bool = False) -> None:
        what, why = f"The store at {masked(url)} has no tickwork tables.", ""
        fix = "Run `tickwork install`, or pass install=True to Tickwork()."
        if is_within:
            what = f"The store at {masked(url)} has no tickwork tables, or old ones."
            why = "They cannot be made while a transaction is open: it may hold the write lock."
            fix = "Call app.install() before the transaction begins, or run `tickwork install`."
        super().__init__(what, why=why, fix=fix)
        self.is_within = is_within
        self.url: str = masked(url)


class SchemaOutdated(StoreError):
    """The tables are older than this code needs."""

    code = "schema-outdated"

    def __init__(self, *, found: int, needed: int) -> None:
        super().__init__(
            f"The tables are at version {found}; this tickwork needs {needed}.",
            fix="Run `tickwork install`: workers of the previous release keep working meanwhile.",
        )
        self.found = found
        self.needed = needed


class SchemaTooNew(StoreError):
    """A newer release has changed the tables in a way that this code must not touch."""

    code = "schema-too-new"

    def __init__(self, *, known: int, compatible_from: int) -> None:
        super().__init__(
            f"This tickwork knows the tables up to version {known}; "
            f"they can be used from {compatible_from} on.",
            why="A newer release has changed them since.",
            fix="Upgrade tickwork here to the release that runs elsewhere.",
        )
        self.known = known
        self.compatible_from = compatible_from


# ---------------------------------------------------------------- runs


class RunError(TickworkError):
    """Something was asked of a run that it cannot do, or did not do."""

    code = "run"

    def __init__(self, run_id: str, what: str, *, why: str = "", fix: str = "") -> None:
        super().__init__(what, why=why, fix=fix)
        self.run_id = run_id


class RunNotFound(RunError, LookupError):
    """No run has this id, neither unfinished nor in history."""

    code = "run-not-found"

    def __init__(self, run_id: str) -> None:
        super().__init__(
            run_id,
            f"There is no run {run_id}.",
            why="It never was in this database, or its history was pruned.",
        )


class AmbiguousRun(RunError, LookupError):
    """Several ids begin like this; ``candidates`` are the first of them."""

    code = "ambiguous-run"

    def __init__(self, prefix: str, *, candidates: Iterable[str]) -> None:
        ids = tuple(candidates)
        super().__init__(
            prefix,
            f"Several runs begin with {prefix!r}.",
            why=f"There are {', '.join(ids)} and maybe more.",
            fix="Write more of the id.",
        )
        self.prefix = prefix
        self.candidates = ids


class NotCommitted(RunNotFound):
    """A run that was dispatched in a transaction of yours, which is not committed.

    No worker sees it before that, and whoever waited for it would hold the transaction open.
    """

    code = "not-committed"

    def __init__(self, run_id: str) -> None:
        RunError.__init__(
            self,
            run_id,
            f"Nobody can see the run {run_id}.",
            why="It was dispatched in a transaction that is not committed, or was rolled back.",
            fix="Commit first; then this handle can be used as any other.",
        )


class AlreadyClaimed(RunError):
    """Only a run that no worker has taken yet can be given another time."""

    code = "already-claimed"

    def __init__(self, run_id: str, *, status: str) -> None:
        super().__init__(
            run_id,
            f"The run {run_id} can no longer be rescheduled: it is {status}.",
            why="at() and delay() move a run only while no worker has claimed it.",
            fix="Cancel it and dispatch another one.",
        )
        self.status = status


class InvalidTransition(RunError):
    """A step from one status to another that the table of statuses does not have."""

    code = "invalid-transition"

    def __init__(self, run_id: str, *, source: str, target: str) -> None:
        super().__init__(
            run_id,
            f"The run {run_id} is {source}, and cannot become {target}.",
            why="docs/reference/statuses.md shows which steps there are.",
        )
        self.source = source
        self.target = target


class LeaseLost(RunError):
    """This worker's claim is over: another one holds the run, or has finished it."""

    code = "lease-lost"

    def __init__(self, run_id: str, *, token: int) -> None:
        super().__init__(
            run_id,
            f"The run {run_id} no longer belongs to claim {token}.",
            why="Its lease ran out, and the run was given to another worker.",
            fix="Stop working on it. If this happens to healthy workers, use a longer lease.",
        )
        self.token = token


class AttemptTimeout(RunError, TimeoutError):
    """An attempt took longer than its job's timeout. It counts as a failed attempt."""

    code = "attempt-timeout"

    def __init__(self, run_id: str, *, timeout: timedelta) -> None:
        super().__init__(
            run_id,
            f"The attempt took longer than {_seconds(timeout)} and was stopped.",
            fix="Give the job a longer timeout, or less to do at once.",
        )
        self.timeout = timeout


class WaitTimeout(RunError, TimeoutError):
    """The run was still unfinished when the wait for it ended. It goes on all the same."""

    code = "wait-timeout"

    def __init__(self, run_id: str, *, status: str, waited: timedelta) -> None:
        super().__init__(
            run_id,
            f"The run {run_id} did not finish within {_seconds(waited)}; it is {status}.",
            fix="Wait longer, or see that a worker takes its queue: `tickwork status`.",
        )
        self.status = status
        self.waited = waited


class RunFailed(RunError):
    """The result of a run was asked for, and it ended without one."""

    code = "run-failed"

    def __init__(self, run_id: str, *, status: str, reason: str) -> None:
        super().__init__(
            run_id,
            f"The run {run_id} ended as {status}.",
            why=reason,
            fix=f"`tickwork inspect {run_id}` shows every attempt.",
        )
        self.status = status
        self.reason = reason


# ---------------------------------------------------------------- the rest


class ScheduleNotFound(TickworkError, LookupError):
    """No schedule has this name for this tenant."""

    code = "schedule-not-found"

    def __init__(
        self, name: str, *, tenant: str = "", known: Iterable[str] = (), fix: str = ""
    ) -> None:
        names = sorted(known)
        super().__init__(
            f"There is no schedule {name!r}" + (f" for the tenant {tenant!r}." if tenant else "."),
            why=f"There is {_listed('schedule', names)}." if names else "",
            fix=fix or _guess(name, names),
        )
        self.name = name
        self.tenant = tenant


class LockHeld(TickworkError):
    """A named lock that another process holds; it says which."""

    code = "lock-held"

    def __init__(self, name: str, *, host: str, pid: int, until: datetime) -> None:
        super().__init__(
            f"The lock {name!r} is held by process {pid} on {host}.",
            why=f"It is renewed while its holder lives, and free from {until.isoformat()} if not.",
            fix=f"Stop that process. If you know it to be gone: tickwork unlock {quote(name)}",
        )
        self.name = name
        self.host = host
        self.pid = pid
        self.until = until


class StillDue(TickworkError):
    """Something is due again and again at the same moment: ``drain`` gave up at its limit."""

    code = "still-due"

    def __init__(self, *, limit: int, jobs: Iterable[str]) -> None:
        names = list(dict.fromkeys(jobs))
        super().__init__(
            f"After {limit:,} runs at one moment there is still something due.",
            why=f"The last ones were of {_listed('job', names)}.",
            fix="A handler that dispatches itself comes to no end: give it a delay. "
            "If there is really that much to do, raise the limit.",
        )
        self.limit = limit
        self.jobs: tuple[str, ...] = tuple(names)


class AlreadyStarted(TickworkError, RuntimeError):
    """start() was called on an app whose worker is running."""

    code = "already-started"

    def __init__(self) -> None:
        super().__init__(
            "This app's worker is running already.",
            fix="Call stop() first; for more throughput start more processes: "
            "tickwork work --processes 4",
        )


# ---------------------------------------------------------------- signals


class Signal(Exception):
    """What a handler raises to say what shall become of its own run."""

    code: ClassVar[str] = "signal"

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.args, self.__dict__)


class RetryLater(Signal):
    """This attempt failed, and another one is worth making.

    ``delay`` is a timedelta, a number of seconds or a text such as ``"5m"``. It is kept
    exactly. Without it the job's retry policy says how long to wait; without a policy: 60 s,
    120 s, 240 s and so on.
    """

    code = "retry-later"

    def __init__(self, delay: timedelta | float | str | None = None, reason: str = "") -> None:
        super().__init__(reason)
        self.delay: timedelta | str | None = None if delay is None else _length(delay)


class Discard(Signal):
    """This run failed, and no further attempt can help: it becomes ``failed_permanent``."""

    code = "discard"


class Snooze(Signal):
    """Not now: the run is due again after ``delay``, and this attempt does not count.

    ``delay`` is a timedelta, a number of seconds or a text such as ``"5m"``.
    """

    code = "snooze"

    def __init__(self, delay: timedelta | float | str, reason: str = "") -> None:
        super().__init__(reason)
        self.delay: timedelta | str = _length(delay)


# ---------------------------------------------------------------- wording


# Greedy up to the last @: hiding too much of an odd URL is better than showing too much.
_PASSWORD = re.compile(r"(?<=:)[^?]*(?=@)|(?<=password=)[^&]*|(?<=passwd=)[^&]*", re.IGNORECASE)


def masked(url: str) -> str:
    """The URL with its password hidden, for messages and logs.

    >>> masked("postgresql://app:s3cret@db.example.org/jobs")
    'postgresql://app:***@db.example.org/jobs'
    """
    scheme, mark, rest = url.partition("://")
    return scheme + mark + _PASSWORD.sub("***", rest)


def _shown(value: object) -> str:
    text = str(value) if isinstance(value, timedelta) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _length(delay: timedelta | float | str) -> timedelta | str:
    # What a text means is for others to say: nothing is imported here.
    return delay if isinstance(delay, timedelta | str) else timedelta(seconds=delay)


def _seconds(length: timedelta) -> str:
    return f"{length.total_seconds():g} s"


def _listed(noun: str, names: list[str], names_max: int = 20) -> str:
    if not names:
        return f"no {noun} at all"
    more = len(names) - names_max
    tail = f" and {more} more" if more > 0 else ""
    plural = "" if len(names) == 1 else "s"
    return f"{len(names)} {noun}{plural}: {', '.join(names[:names_max])}{tail}"


def _guess(name: str, names: list[str]) -> str:
    close = get_close_matches(name, names, n=1)
    return f"Did you mean {close[0]!r}?" if close else ""
