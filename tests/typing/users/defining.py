"""What a definition is, for type checkers. A line that must not pass names the error's code."""

from collections.abc import AsyncIterator, Coroutine, Generator, Iterator
from typing import Any, assert_type

from tickwork import JobResult, RunContext, ScheduledJob, Secret, Tickwork
from tickwork._dispatch.builder import JobBuilder, ScheduleBuilder

app = Tickwork("memory://")


# ---------------------------------------------------------------- the decorator


@app.job
def send(to: str, subject: str = "hello", *, urgent: bool = False) -> int:
    return len(to) + len(subject) + urgent


@app.job()
def empty(to: str) -> None: ...


@app.job(name="renamed", queue="emails", priority=10, attempts=5, concurrency=3)
def resend(to: str) -> str:
    return to


@app.job
async def fetch(url: str) -> bytes:
    return url.encode()


# Still the function that it was.
assert_type(send("ann"), int)
assert_type(send("ann", "bye", urgent=True), int)
assert_type(empty("ann"), None)
assert_type(resend(to="ann"), str)
fetched: Coroutine[Any, Any, bytes] = fetch("https://example.org")
send(1)  # expect: arg-type
send.name.upper()


# ---------------------------------------------------------------- the context is no argument


@app.job
def report(ctx: RunContext, account: int) -> int:
    ctx.progress(0.5, note="half way")
    assert_type(ctx.attempt, int)
    assert_type(ctx.tenant, str)
    return account


@app.job(queue="reports")
def report_later(ctx: RunContext, account: int) -> int:
    return account


@app.job
def maybe(ctx: RunContext | None, account: int) -> int:
    return account


report.dispatch(7)
report.dispatch(account=7)
report_later.dispatch(7)
maybe.dispatch(7)
report.dispatch("seven")  # expect: arg-type
report.dispatch(ctx=None, account=7)  # expect: call-arg


# ---------------------------------------------------------------- secrets are what they hold


@app.job
def charge(card: Secret[str], amount: int) -> JobResult:
    assert_type(card, str)
    return JobResult.success({"charged": amount})


charge.dispatch("4111", 5)
charge.dispatch(4111, 5)  # expect: arg-type
assert_type(charge("4111", 5), JobResult)
JobResult.failure("no", should_retry=True, retry_delay="5m")
JobResult.failure("no", should_retry="yes")  # expect: arg-type


# ---------------------------------------------------------------- options by name


@app.job(
    args={"to": "ann"},
    aliases=["old_name"],
    concurrency=[3, {"slots": 1, "per": "to"}],
    crashes=3,
    expires="1h",
    jitter=5,
    lease=60,
    misfire="skip",
    on_before=lambda ctx: None,
    on_success=[lambda ctx, result: None],
    overlap="allow",
    tags=("a", "b"),
    timeout="5m",
    unique=True,
    when=lambda to: True,
)
def everything(to: str) -> None: ...


app.job(que="emails")  # expect: call-overload
app.job(priority="high")  # expect: call-overload
app.job(retries={"max": 5, "base": 2})


# ---------------------------------------------------------------- classes and instances


class Mail:
    def __init__(self, server: str = "localhost") -> None:
        self.server = server

    def handle(self, to: str) -> int:
        return len(to)


class Static:
    @staticmethod
    def handle(to: str) -> int:
        return len(to)


class OfClass:
    @classmethod
    def handle(cls, to: str) -> int:
        return len(to)


class WithContext:
    def handle(self, ctx: RunContext, to: str) -> int:
        return len(to)


class Verdict(ScheduledJob):
    def execute(self) -> bool:
        return True


class Coroutines:
    async def execute(self, to: str) -> bool:
        return bool(to)


app.job(Mail).dispatch(to="ann")
app.job(Mail).dispatch("localhost", "ann")  # expect: call-arg
app.job(Static).dispatch("ann")
app.job(OfClass).dispatch("ann")
app.job(WithContext).dispatch("ann")
app.job(WithContext).dispatch(7)  # expect: arg-type
app.job(Verdict).dispatch()
app.job(Verdict).dispatch("ann")  # expect: call-arg
app.job(name="mail", queue="emails")(Coroutines).dispatch("ann")
app.job(name="mail", queue="emails")(Coroutines).dispatch(7)  # expect: arg-type


# ---------------------------------------------------------------- what is not annotated


@app.job
def anything(value: Any, more: int = 0) -> None: ...


@app.job
def an_object(value: object) -> None: ...


# The first argument may be the context, so such a dispatch is not checked.
anything.dispatch(1)
anything.dispatch(value=1, more=2)
an_object.dispatch(value=1)
app.schedule("lambda", lambda to: None).dispatch(to="ann")


# ---------------------------------------------------------------- the builder


def send_digest(to: str, kind: str = "daily") -> None: ...


builder = app.schedule("digest", send_digest).weekdays().hours(9).queue("emails").attempts(3)
digest: JobBuilder[..., None] = builder
builder.dispatch("ann", kind="weekly")
builder.dispatch(7)  # expect: arg-type
builder.dispatch()  # expect: call-arg
builder.delay(10).dispatch("ann")
builder.job.dispatch("ann")
app.schedule("report", report.job)  # expect: attr-defined
app.schedule("mail", Mail).dispatch("ann")
app.schedule("mail", Mail).dispatch(7)  # expect: arg-type
app.schedule("path", "shop.mail:Send").dispatch(whatever=1)
app.schedule("type").dispatch(whatever=1)

# Given a job, it is one more schedule of it, without options of the job itself.
schedule = app.schedule("nightly", send).daily_at("02:00").args(to="all").queue("slow")
nightly: ScheduleBuilder[...] = schedule
schedule.attempts(3)  # expect: attr-defined
schedule.timeout(5)  # expect: attr-defined
schedule.dispatch("ann")  # expect: attr-defined
app.schedule("again", builder).hourly()
app.schedule("again", builder).attempts(3)  # expect: attr-defined


# ---------------------------------------------------------------- ad hoc and remote

app.adhoc("process-42", send_digest).queue("uploads").dispatch("ann")
app.adhoc("process-42", send_digest).dispatch(42)  # expect: arg-type
app.remote("elsewhere").queue("q").dispatch(whatever=1)


# ---------------------------------------------------------------- hooks

(
    app.schedule("hooked", send_digest)
    .on_before(lambda ctx: ctx.attempt)
    .on_success(lambda ctx, result: None)
    .on_error(lambda ctx, error: None)
    .on_after(lambda: None)
    .when(lambda kind: kind == "daily")
    .skip(lambda: False)
)
app.schedule("hooked", send_digest).on_before("no hook")  # expect: arg-type


# ---------------------------------------------------------------- middleware


@app.middleware
def timing(ctx: RunContext) -> Iterator[None]:
    yield


@app.middleware
def results(ctx: RunContext) -> Generator[None, Any, None]:
    result = yield
    assert result


@app.middleware
async def session(ctx: RunContext) -> AsyncIterator[None]:
    yield


@app.middleware  # expect: type-var
def not_one(ctx: RunContext) -> None: ...


# ---------------------------------------------------------------- workers


@app.on_worker_start
def open_pool() -> None: ...


@app.on_worker_stop
async def close_client() -> None: ...


assert_type(open_pool(), None)


@app.on_worker_start  # expect: type-var
def takes_more(worker: int) -> None: ...
