"""One example of each error, as the reference shows it."""

from datetime import UTC, datetime, timedelta
from typing import Final

from tickwork import errors
from tickwork.errors import Signal, TickworkError

RUN: Final = "019cb0d2-0000-7000-8000-000000000001"
URL: Final = "postgresql://app:s3cret@db/jobs"

ERRORS: Final[tuple[TickworkError, ...]] = (
    TickworkError(
        "The schedule 'nightly' could not be changed.",
        why="Another process changed it 10 times meanwhile.",
        fix="Try again.",
    ),
    errors.DefinitionError(
        "The job 'report' has no handler.",
        why="None was given, and no registered handler supports this job type.",
        fix="Pass a handler to schedule(), or register one: app.handler(...).",
    ),
    errors.InvalidSchedule(
        "There is no time zone 'Europe/Berln'.",
        why="Time zones are named as in the IANA database, such as 'Europe/Berlin'.",
        fix="Did you mean 'Europe/Berlin'?",
    ),
    errors.RuleTooCostly(250_000),
    errors.CronError(
        "0 22-2 * * *",
        "hour (field 2) '22-2' runs backwards",
        field="hour",
        token="22-2",  # noqa: S106  # no password
        position=2,
        hint="Write '22-23,0-2'.",
    ),
    errors.InvalidOption("batch", 0, "must be between 1 and 1,000"),
    errors.UnknownOption("A job", "retrys", known=["queue", "retries"]),
    errors.InvalidDuration("5 parsecs", "'parsecs' is not a unit."),
    errors.NaiveDatetime(datetime(2026, 1, 1)),  # noqa: DTZ001  # the point of the example
    errors.DuplicateDefinition("job", "sweep", first="shop/a.py:1", second="shop/b.py:2"),
    errors.ScheduleNameTaken("schedule", "sweep", first="shop/a.py:1", second="shop/b.py:2"),
    errors.ScheduleConflict("sweep", application="crm", other="shop", place="crm/jobs.py:7"),
    errors.JobNotFound("send_emial", known=["sweep", "send_email"]),
    errors.HandlerNotFound("shop.mail:send", "There is no module 'shop.mail'."),
    errors.HandlerNotAllowed("os:system", allowed=["shop"]),
    errors.ConfigError(
        "tickwork.toml",
        [
            "line 3: hour '9-77' is not in 0-23.",
            "line 8: retries must be an integer, got 'many'.",
        ],
    ),
    errors.ArgumentError("charge", "it takes no argument 'account'.", signature="(cents: int)"),
    errors.PayloadError("The result was not stored."),
    errors.NotSerializable("payload['file']", "it is a socket.", fix="Pass its address."),
    errors.PayloadTooLarge(70_000, size_max=65_536),
    errors.PayloadUnreadable("it is nested too deeply."),
    errors.PayloadEncrypted(),
    errors.PayloadMismatch("charge", "order has the unknown field 'total'."),
    errors.StoreError("The store cannot be used.", why="A store of another program raises it."),
    errors.InvalidStoreUrl(
        "oracle://app:s3cret@db", "the scheme must be mysql or postgresql, got 'oracle'."
    ),
    errors.StoreUnavailable(URL, "connection refused"),
    errors.FolderMissing("sqlite:///jobs/jobs.db", "The folder /srv/shop/jobs does not exist."),
    errors.AccessDenied(URL, 'password authentication failed for user "app"'),
    errors.StoreReadOnly(URL, "cannot execute INSERT in a read-only transaction"),
    errors.StatementFailed(URL, "permission denied for table tickwork_history", state="42501"),
    errors.ValueRejected("value out of range", state="22003"),
    errors.RowRejected("not for this customer", state="P0001"),
    errors.StoreDamaged("/srv/shop/jobs.db", "file is not a database"),
    errors.StoreReplaced("/srv/shop/jobs.db", is_deleted=True),
    errors.StoreLinked("/srv/shop/jobs.db", links=2),
    errors.OutcomeUnknown(
        URL, "The server did not answer within 35 seconds.", has_timed_out=True, run_ids=[RUN]
    ),
    errors.ReadTimeout(URL, limit=timedelta(seconds=5)),
    errors.StoreBusy("sqlite:///jobs.db", waited=timedelta(seconds=5)),
    errors.DriverMissing("psycopg", extra="postgres"),
    errors.ExtraMissing("prometheus_client", extra="prometheus"),
    errors.ServerTooOld("PostgreSQL", found="9.4", needed="13"),
    errors.NetworkFileSystem("/mnt/jobs.db", file_system="nfs4"),
    errors.WrongConnection(URL, "It is a sqlite3.Connection.", takes="a psycopg.Connection"),
    errors.SchemaMissing(URL),
    errors.SchemaDamaged(
        "sqlite:////srv/shop/jobs.db", version=5, reason="no such column: expect_within."
    ),
    errors.SchemaOutdated(found=3, needed=4),
    errors.SchemaTooNew(known=3, compatible_from=5),
    errors.RunError(
        RUN,
        f"The run {RUN} cannot be retried: it is running.",
        fix="Wait until it has finished, or cancel it first.",
    ),
    errors.RunNotFound(RUN),
    errors.AmbiguousRun("019cb0d2", candidates=[RUN, RUN[:-1] + "2"]),
    errors.NotCommitted(RUN),
    errors.AlreadyClaimed(RUN, status="running"),
    errors.InvalidTransition(RUN, source="completed", target="canceled"),
    errors.LeaseLost(RUN, token=3),
    errors.AttemptTimeout(RUN, timeout=timedelta(seconds=30)),
    errors.WaitTimeout(RUN, status="running", waited=timedelta(seconds=2.5)),
    errors.ResultExpired(RUN),
    errors.RunUnsuccessful(RUN, status="failed_permanent", reason="ValueError: no such account"),
    errors.FlowError("A step cannot be made here."),
    errors.DuplicateStep("charge", run_id=RUN),
    errors.NestedStep("ctx.step", "inside of a step"),
    errors.BlockingStep("step"),
    errors.InvalidStep(
        "charge",
        "returned a value that cannot be stored: payload has the type Lock, which has no JSON form",
        "Return less, or a value that has a JSON form.",
    ),
    errors.StepLimit(RUN, steps_max=1_000),
    errors.FlowsUnavailable("A step of the job 'order'", "dask_results"),
    errors.EventTimeout("approved", timeout=timedelta(days=7)),
    errors.SubRunFailed(RUN, job="ship", status="canceled", reason="out of stock"),
    errors.FlowChanged("ship", run_id=RUN),
    errors.CallbackRefused("expired", "It was valid until 2026-03-01 09:00 UTC."),
    errors.StepFailed("charge", kind="CardDeclined", reason="declined with code 7"),
    errors.EngineError("The run was not handed over.", why="The engine 'celery' is closed."),
    errors.EngineMissing("celery", extra="celery"),
    errors.EngineUnavailable(
        "celery", "amqp://app:s3cret@broker//", reason="[Errno 111] Connection refused"
    ),
    errors.EngineBroken("thread", reason="RuntimeError: can't start new thread"),
    errors.HandoverRejected(
        "It has version 2, and this process reads version 1.",
        fix="Install the same version of tickwork on both sides.",
    ),
    errors.WorkerNotFound("web-1:99", known=["web-1:42", "web-2:17"]),
    errors.ScheduleNotFound("nightyl", tenant="acme", known=["hourly", "nightly"]),
    errors.LockHeld("import", host="web-1", pid=4711, until=datetime(2026, 1, 1, tzinfo=UTC)),
    errors.StillDue(limit=10_000, jobs=["ping", "pong", "ping"]),
    errors.AlreadyStarted(),
    errors.WorkerStartFailed("shop.jobs:connect", "OSError: no route to host"),
    errors.KeyReused("order-42"),
    errors.DatabaseNotAllowed(
        "jobs",
        "Database queries to 'jobs' are not allowed in this test. Add 'jobs' to "
        "shop.tests.OrderTest.databases to ensure proper test isolation and silence this failure.",
    ),
)

SIGNALS: Final[tuple[tuple[Signal, str], ...]] = (
    (Signal("Not now."), ""),
    (errors.RetryLater("5m", "The printer is busy."), 'RetryLater("5m", "The printer is busy.")'),
    (errors.Discard("There is no such user."), 'Discard("There is no such user.")'),
    (errors.Snooze("1h", "The shop is closed."), 'Snooze("1h", "The shop is closed.")'),
)
"""A signal, and how a handler raises it."""
