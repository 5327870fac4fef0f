"""Arguments and results by their annotations: checked at dispatch, rebuilt for the handler."""

import asyncio
import enum
import json
import subprocess
import sys
import threading
import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    TypedDict,
    TypeVar,
    Unpack,
)
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest

from tickwork import JobResult, RunContext, RunStatus, Secret, Tickwork, testing
from tickwork.errors import (
    ArgumentError,
    NotSerializable,
    PayloadMismatch,
    PayloadTooLarge,
)

T = TypeVar("T")
UserId = NewType("UserId", int)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Shape(enum.Enum):
    """Values that have no JSON form: members are stored by name."""

    ROUND = object()
    FLAT = ()


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: int
    y: int = 0


class Address(TypedDict):
    street: str
    number: NotRequired[int]


@dataclass
class Line:
    sku: str
    price: Decimal
    count: int = 1


@dataclass(frozen=True, kw_only=True)
class Order:
    id: UUID
    placed_at: datetime
    lines: list[Line]
    color: Color | None = None
    notes: dict[str, str] = field(default_factory=dict)


@dataclass
class RushOrder(Line):
    hours: int = 1


@dataclass
class Tree:
    name: str
    children: "list[Tree]" = field(default_factory=list)


@dataclass
class Box(Generic[T]):
    content: T
    more: list[T] = field(default_factory=list)


@dataclass(eq=False)
class ByIdentity:
    n: int


@dataclass(frozen=True)
class Key:
    n: int


@dataclass
class Forgetful:
    n: int
    seen: int = field(init=False, default=0)


class User(pydantic.BaseModel):
    id: int
    email: str
    born: date | None = None
    home: Path = Path("/")


class Aliased(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    user_id: int = pydantic.Field(validation_alias="userId", serialization_alias="ident")


class Hidden(pydantic.BaseModel):
    shown: int
    kept: int = pydantic.Field(default=0, exclude=True)


class Event(msgspec.Struct):
    id: int
    at: datetime
    tags: set[str] = msgspec.field(default_factory=set)


@attrs.define
class Car:
    wheels: int
    _secret: str = "none"
    made_on: date | None = None


class Money:
    def __init__(self, cents: int, currency: str) -> None:
        self.cents = cents
        self.currency = currency

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and (self.cents, self.currency) == (
            other.cents,
            other.currency,
        )

    def __hash__(self) -> int:
        return hash(self.cents)


NOW = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
ORDER = Order(
    id=UUID(int=7),
    placed_at=NOW,
    lines=[Line("a", Decimal("1.50")), Line("b", Decimal(2), count=3)],
    color=Color.BLUE,
    notes={"$gift": "yes"},
)


@pytest.fixture
def app():
    with Tickwork("memory://") as app:
        app.codec.register(
            Money,
            encode=lambda money: [money.cents, money.currency],
            decode=lambda parts: Money(*parts),
        )
        yield app


def handler_with(annotation, returns=Any):
    """A handler with one parameter of this type, which returns it."""

    def handler(value):
        SEEN.append(value)
        return value

    handler.__annotations__ = {"value": annotation, "return": returns}
    return handler


SEEN: list[Any] = []


def label(value):
    """The same in every process, unlike the text of a set."""
    is_plain = isinstance(value, type | str | int) or hasattr(value, "__args__")
    return str(value) if is_plain else type(value).__name__


@pytest.fixture(autouse=True)
def _nothing_seen():
    SEEN.clear()


ROUND_TRIPS = [
    (int, 7),
    (int, 2**70),
    (float, 1e300),
    (float, 3),
    (str, "x"),
    (bool, True),
    (None, None),
    (bytes, b"\x00\xff"),
    (datetime, NOW),
    (date, date(2026, 3, 1)),
    (time, time(9, 30, 15, 20)),
    (time, time(9, 30, tzinfo=UTC)),
    (timedelta, timedelta(days=-1, microseconds=5)),
    (Decimal, Decimal("1.50")),
    (UUID, UUID(int=9)),
    (Path, Path("/tmp/x")),
    (PurePosixPath, PurePosixPath("a/b")),
    (Color, Color.RED),
    (Level, Level.HIGH),
    (Shape, Shape.FLAT),
    (Access, Access.READ | Access.WRITE),
    (Point, Point(1, 2)),
    (Address, {"street": "Elm"}),
    (Address, {"street": "Elm", "number": 3}),
    (list, [1, {"a": [NOW]}]),
    (dict, {"a": 1}),
    (dict[str, int], {"$a": 1}),
    (dict[int, Color], {1: Color.RED, 2: Color.BLUE}),
    (dict[UUID, Line], {UUID(int=1): Line("a", Decimal(1))}),
    (dict[Color, int], {Color.RED: 1}),
    (Mapping[str, date], {"a": date(2026, 1, 1)}),
    (tuple, (1, "a")),
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], (1, 2, 3)),
    (tuple[()], ()),
    (set[str], {"b", "a"}),
    (set, {1, 2}),
    (frozenset[Key], frozenset({Key(1), Key(2)})),
    (deque[int], deque([1, 2])),
    (Sequence[int], [1, 2]),
    (Sequence[int], (1, 2)),
    (list[tuple[int, Color]], [(1, Color.RED)]),
    (Line, Line("a", Decimal(1))),
    (Order, ORDER),
    (Tree, Tree("a", [Tree("b"), Tree("c", [Tree("d")])])),
    (Box[int], Box(1, [2])),
    (Box[Color], Box(Color.RED, [Color.BLUE])),
    (Forgetful, Forgetful(1)),
    (User, User(id=1, email="a@b", born=date(2000, 1, 1))),
    (list[User], [User(id=1, email="a@b")]),
    (Aliased, Aliased.model_validate({"userId": 3})),
    (Event, Event(1, NOW, {"x"})),
    (Car, Car(4, "s", date(2026, 1, 1))),
    (Money, Money(5, "EUR")),
    (dict[str, Money], {"a": Money(5, "EUR")}),
    (UserId, 7),
    (Literal["a", 1], 1),
    (Annotated[int, "anything"], 3),
    (Secret[Line], Line("a", Decimal(1))),
    (Color | None, None),
    (Color | None, Color.RED),
    (int | str, "7"),
    (int | float, 1.0),
    (float | int, 1),
    (bool | int, True),
    (datetime | str, "2026-01-01T00:00:00+00:00"),
    (str | Path, Path("x")),
    (Path | str, "x"),
    (str | Color, Color.RED),
    (Line | User, User(id=1, email="a")),
    (Line | Car | None, Car(4)),
    (list[int] | list[str], ["a"]),
    (dict[str, Any] | Line, {"sku": "a", "price": 1}),
    (Any, {"a": [1, None]}),
    (object, 3),
]


@pytest.mark.parametrize(("annotation", "value"), ROUND_TRIPS, ids=label)
def test_the_handler_and_the_caller_get_what_was_dispatched(app, annotation, value):
    job = app.job(handler_with(annotation, returns=annotation))

    run = job.dispatch(value=value)
    app.run()

    for found in (*SEEN, run.result()):
        assert found == value
        assert type(found) is type(value)
    assert len(SEEN) == 1


def test_objects_that_compare_by_identity_are_rebuilt(app):
    job = app.job(handler_with(list[ByIdentity]))
    job.dispatch(value=[ByIdentity(3)])
    app.run()

    assert type(SEEN[0][0]) is ByIdentity
    assert SEEN[0][0].n == 3


WRONG = [
    (int, "7", "value must be int, got str"),
    (int, True, "value must be int, got bool"),
    (int, 7.0, "value must be int, got float"),
    (int, Level.LOW, "value must be int, got Level"),
    (str, Color.RED, "value must be str, got Color"),
    (float, "1", "value must be float, got str"),
    (bool, 1, "value must be bool, got int"),
    (datetime, "2026-01-01", "value must be datetime, got str"),
    (date, NOW, "value must be date, got datetime"),
    (Color, "red", "value must be Color, got str"),
    (Path, "x", "value must be Path, got str"),
    (list[int], (1,), "value must be list[int], got tuple"),
    (list[int], [1, "2"], "value[1] must be int, got str"),
    (dict[str, int], {"a": "b"}, "value['a'] must be int, got str"),
    (dict[str, int], {1: 1}, "value must have keys of type str, got int"),
    (tuple[int, str], (1,), "value must have 2 items, got 1"),
    (Point, (1, 2), "value must be Point, got tuple"),
    (Address, {"street": 1}, "value['street'] must be str, got int"),
    (Address, {"number": 1}, "value lacks 'street'"),
    (Address, {"street": "", "zip": 1}, "value has the unknown field 'zip'"),
    (Line, {"sku": "a"}, "value must be Line, got dict"),
    (Order, "x", "value must be Order, got str"),
    (Line, RushOrder("a", Decimal(1)), "RushOrder is a subclass"),
    (Line, Line("a", 1.5), "value.price must be Decimal, got float"),  # type: ignore[arg-type]
    (User, {"id": 1}, "value must be User, got dict"),
    (User, User.model_construct(id="7", email="a"), "value"),
    (Hidden, Hidden(shown=1, kept=2), "would not be rebuilt"),
    (Event, Event("1", NOW), "value"),  # type: ignore[arg-type]
    (Literal["a", "b"], "c", "value must be 'a' or 'b', got 'c'"),
    (Literal[1], True, "value must be 1, got True"),
    (int | None, "7", "value must be int | None, got str"),
    (int | list[int], ["a"], "value[0] must be int, got str"),
    (UserId, "7", "value must be int, got str"),
    (Annotated[int, pydantic.Field(gt=3)], 2, "greater than 3"),
    (Annotated[int, msgspec.Meta(gt=3)], 2, ">= 4"),
    (Box[int], Box("a"), "value.content must be int, got str"),
    (asyncio.Event, 3, "value must be Event, got int"),
]


@pytest.mark.parametrize(("annotation", "value", "message"), WRONG, ids=label)
def test_a_wrong_call_fails_where_it_is_made(app, annotation, value, message):
    job = app.job(handler_with(annotation))

    with pytest.raises(ArgumentError) as caught:
        job.dispatch(value=value)

    assert message in str(caught.value)
    assert app.runs.recent() == []


def test_a_type_without_a_codec_is_refused_and_the_cure_is_named(app):
    job = app.job(handler_with(deque[asyncio.Event]))

    with pytest.raises(NotSerializable) as caught:
        job.dispatch(value=deque([asyncio.Event()]))

    assert caught.value.path == "payload['value'][0]"
    assert "app.codec.register(Event" in caught.value.fix


def test_a_naive_datetime_in_a_dataclass_is_refused(app):
    job = app.job(handler_with(Order))
    wrong = Order(id=UUID(int=1), placed_at=datetime(2026, 1, 1), lines=[])

    with pytest.raises(NotSerializable, match="no time zone") as caught:
        job.dispatch(value=wrong)

    assert caught.value.path == "payload['value'].placed_at"


def test_a_value_that_contains_itself_is_refused(app):
    tree = Tree("a")
    tree.children.append(tree)

    with pytest.raises(NotSerializable, match="contains itself"):
        app.job(handler_with(Tree)).dispatch(value=tree)


def test_a_large_payload_is_refused(app):
    with pytest.raises(PayloadTooLarge):
        app.job(handler_with(list[Line])).dispatch(value=[Line("x" * 100, Decimal(1))] * 1000)


def test_errors_do_not_show_values(app):
    job = app.job(handler_with(Secret[User]))

    with pytest.raises(ArgumentError) as caught:
        job.dispatch(value=User.model_construct(id="hunter2", email="a"))

    assert "hunter2" not in str(caught.value)


def test_equal_sets_have_equal_keys(app):
    @app.job(unique=True)
    def work(names: set[str], order: Order) -> None: ...

    one = work.dispatch(names={"a", "b", "c"}, order=ORDER)
    other = work.dispatch(names={"c", "b", "a"}, order=ORDER)

    assert other.id == one.id


def test_limit_keys_and_filters_see_arguments(app):
    seen = []

    def is_red(color: Color) -> bool:
        seen.append(color)
        return True

    def work(color: Color) -> None: ...

    job = app.schedule("work", work).rate(100, per="minute", by="color").when(is_red)
    run = job.dispatch(color=Color.RED)
    app.run()

    assert run.status is RunStatus.COMPLETED
    assert seen == [Color.RED]


def test_keyword_arguments_of_any_name_have_their_type(app):
    class Options(TypedDict, total=False):
        day: date
        level: Level

    def typed(**days: date) -> None:
        SEEN.append(days)

    def unpacked(**options: Unpack[Options]) -> None:
        SEEN.append(options)

    def untyped(**rest) -> None:
        SEEN.append(rest)

    typed.__annotations__ = {"days": date}
    unpacked.__annotations__ = {"options": Unpack[Options]}
    first, second, third = app.job(typed), app.job(unpacked), app.job(untyped)

    first.dispatch(one=date(2026, 1, 1))
    app.run()
    second.dispatch(level=Level.LOW)
    app.run()
    third.dispatch(**{"$x": 1})
    app.run()

    assert [{"one": date(2026, 1, 1)}, {"level": Level.LOW}, {"$x": 1}] == SEEN
    assert type(SEEN[1]["level"]) is Level
    with pytest.raises(ArgumentError, match="one must be date, got str"):
        first.dispatch(one="2026-01-01")


def test_an_annotation_that_cannot_be_resolved_is_untyped_and_warns(app):
    def handler(value) -> None:
        SEEN.append(value)

    handler.__annotations__ = {"value": "ThereIsNoSuchType", "return": None}
    job = app.job(handler)

    with pytest.warns(UserWarning, match="ThereIsNoSuchType"):
        job.dispatch(value=[1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        job.dispatch(value=[1])
    app.run()

    assert SEEN == [[1], [1]]


# ---------------------------------------------------------------- rows of other versions


def stored(app, job, args):
    """A run whose stored arguments are this JSON value."""
    run = app.remote(job.name).dispatch(**args)
    app.run()
    return run


@pytest.mark.parametrize(
    ("annotation", "value", "rebuilt"),
    [
        (list[Line], [{"sku": "a", "price": Decimal(1)}], [Line("a", Decimal(1), count=1)]),
        (Point, {"x": 3}, Point(3, 0)),
        (Point, [3], Point(3, 0)),
        (Tree, {"name": "a"}, Tree("a", [])),
        (Address, {"street": "a"}, {"street": "a"}),
        (Car, {"wheels": 4}, Car(4)),
        (User, {"id": 1, "email": "a"}, User(id=1, email="a")),
    ],
    ids=label,
)
def test_a_missing_field_gets_its_default(app, annotation, value, rebuilt):
    """A program may add fields with a default while runs of its last version wait."""
    job = app.job(handler_with(annotation))
    stored(app, job, {"value": value})

    assert [rebuilt] == SEEN


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        (Line, {"sku": "a", "price": Decimal(1), "gone": 1}, "the unknown field 'gone'"),
        (Line, {"sku": "a"}, "value lacks 'price'"),
        (Point, {"y": 1}, "value lacks 'x'"),
        (Point, [], "value lacks 'x'"),
        (Address, {"number": 1}, "value lacks 'street'"),
        (Car, {"made_on": None}, "value lacks 'wheels'"),
        (Color, "green", "'green'"),
        (int, "7", "value must be int, got str"),
        (list[Line], [{"sku": 1}], "value[0]"),
        (User, {"id": "x", "email": "a"}, "value.id"),
        (Event, {"id": "x"}, "value"),
        (Money, 3, "value"),
        (Line | Car, {"x": 1}, "value must be Line | Car"),
    ],
    ids=label,
)
def test_a_row_that_does_not_fit_fails_for_good(app, annotation, value, message):
    name = "job"
    app.schedule(name, handler_with(annotation)).retries(max=5)
    run = app.remote(name).dispatch(value=value)
    app.run()

    assert run.status is RunStatus.FAILED_PERMANENT
    assert message in run.read().reason
    assert SEEN == []


def test_a_row_in_the_natural_form_of_json_is_read(app):
    """Other languages write no tags."""
    job = app.job(handler_with(Order))
    text = {
        "id": str(UUID(int=7)),
        "placed_at": "2026-03-01T09:30:00+00:00",
        "lines": [{"sku": "a", "price": "1.50"}],
    }
    stored(app, job, {"value": text})

    assert [Order(id=UUID(int=7), placed_at=NOW, lines=[Line("a", Decimal("1.50"))])] == SEEN


# ---------------------------------------------------------------- results


def test_a_result_that_does_not_fit_is_not_stored(app):
    def work() -> int:
        return "7"  # type: ignore[return-value]

    run = app.job(work).dispatch()
    app.run()

    assert run.status is RunStatus.COMPLETED
    assert "result must be int, got str" in run.read().reason
    assert run.result() is None


def test_results_of_coroutines_and_job_results_are_rebuilt(app):
    async def one() -> Order:
        return ORDER

    def two() -> JobResult:
        return JobResult.success([1, 2])

    def three(ctx: RunContext) -> Order | JobResult:
        return JobResult.success(ORDER)

    runs = [app.job(each).dispatch() for each in (one, two, three)]
    app.run()

    assert [run.result() for run in runs] == [ORDER, [1, 2], ORDER]


def test_a_result_of_another_version_is_an_error_for_the_caller(app):
    def work() -> dict[str, Any]:
        return {"sku": 1}

    run = app.job(work).dispatch()
    app.run()
    work.__annotations__["return"] = Line
    app.codec.register(Money, encode=lambda money: money.cents, decode=lambda cents: cents)

    with pytest.raises(PayloadMismatch, match=r"result lacks 'price'"):
        run.result()


def test_run_handles_of_another_process_have_typed_results(app):
    job = app.job(handler_with(Order, returns=Order))
    run = job.dispatch(value=ORDER)
    app.run()

    assert app.get_run(run.id).result() == ORDER
    assert json.loads(run.read().args)["value"]["color"] == "blue"


def test_a_class_is_registered_with_functions_by_position():
    with Tickwork("memory://") as app:
        app.codec.register(Money, lambda money: money.cents, lambda cents: Money(cents, "EUR"))
        run = app.job(handler_with(Money, returns=Money)).dispatch(value=Money(5, "EUR"))
        app.run()

        assert run.result() == Money(5, "EUR")


class TestDatabases:
    """Every database keeps every type exactly."""

    def test_every_type_comes_back(self, make_app):
        one, other = make_app(), make_app()
        for app in (one, other):
            app.codec.register(
                Money,
                encode=lambda money: [money.cents, money.currency],
                decode=lambda parts: Money(*parts),
            )
            for number, (annotation, _) in enumerate(ROUND_TRIPS):
                app.job(name=f"job-{number}")(handler_with(annotation, returns=annotation))
        handles = [
            one.dispatch(f"job-{number}", value=value)
            for number, (_, value) in enumerate(ROUND_TRIPS)
        ]
        other.collect(0)

        found = [handle.result() for handle in handles]
        assert found == [value for _, value in ROUND_TRIPS]
        assert [type(each) for each in found] == [type(value) for _, value in ROUND_TRIPS]


def test_a_process_that_only_dispatches_imports_no_library_of_types():
    program = (
        "import sys\n"
        "from tickwork import Tickwork\n"
        "app = Tickwork('memory://')\n"
        "@app.job\n"
        "def work(n: int, names: list[str]) -> None: ...\n"
        "work.dispatch(n=1, names=['a'])\n"
        "print(sorted({'pydantic', 'msgspec', 'attr', 'attrs'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.strip() == "[]"


def test_secret_fields_are_masked_in_errors(app):
    @app.job
    def charge(card: Secret[Line]) -> None:
        raise ValueError(f"rejected: {card.sku}")

    run = charge.dispatch(card=Line("4111-1111", Decimal(1)))
    app.run()

    assert "4111" not in run.read().reason
    assert "***" in run.read().reason
    assert app.inspect.view(run.read()).args == {"card": "***"}


ENTERED, DONE = threading.Event(), threading.Event()


def slowly() -> type:
    """An annotation that takes a while to evaluate."""
    ENTERED.set()
    DONE.wait(0.3)
    return int


@dataclass
class Slow:
    n: "slowly()"  # type: ignore[valid-type]


def test_a_thread_does_not_use_a_type_that_another_one_is_building(app):
    one = app.job(name="one")(handler_with(Slow))
    other = app.job(name="other")(handler_with(list[Slow]))
    first = threading.Thread(target=lambda: one.dispatch(value=Slow(1)))
    first.start()
    ENTERED.wait(10)

    other.dispatch(value=[Slow(2)])
    DONE.set()
    first.join()
    app.run()

    assert sorted(str(each) for each in SEEN) == ["Slow(n=1)", "[Slow(n=2)]"]


def test_an_annotation_may_name_what_is_defined_later(app):
    def handler(count: int, value: "DefinedLater") -> None:  # type: ignore[name-defined]  # noqa: F821
        SEEN.append((count, value))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        job = app.job(args={"count": 1})(handler)
        globals()["DefinedLater"] = Key
        try:
            job.dispatch(value=Key(3))
            app.run()
        finally:
            del globals()["DefinedLater"]

    assert [(1, Key(3))] == SEEN


def test_the_testing_kit_shows_typed_values():
    with testing.app() as app:
        job = app.job(handler_with(Order, returns=Order))
        job.dispatch(value=ORDER)
        app.remote(job.name).dispatch(value={"id": 1})
        first, second = testing.dispatched(app)

        assert first.args == {"value": ORDER}
        assert second.args == {"value": {"id": 1}}
        assert testing.drain(app)[0].result == ORDER


@dataclass
class Login:
    name: str
    password: Secret[str]


class Account(pydantic.BaseModel):
    logins: list[Login]


class Session(msgspec.Struct):
    login: "Login"


@pytest.mark.parametrize("annotation", [Login, list[Login], Account, Session | None], ids=label)
def test_an_argument_with_a_secret_field_is_secret(app, annotation):
    login = Login("ann", "hunter2")
    account = Account(logins=[login])
    value = {Login: login, list[Login]: [login], Account: account}.get(annotation, Session(login))
    job = app.job(handler_with(annotation))

    run = job.dispatch(value=value)
    app.run()

    assert [value] == SEEN
    assert app.inspect.view(run.read()).args == {"value": "***"}
