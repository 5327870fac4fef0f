"""Any value of any annotation is stored as JSON and rebuilt exactly."""

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import PurePosixPath
from typing import Any, NamedTuple, Union
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from tickwork._payload.codec import decode, encode_canonical, encode_simple
from tickwork._payload.payload_types import Codec


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Point(NamedTuple):
    x: int
    y: float = 0.0


@dataclass(frozen=True)
class Line:
    sku: str
    price: Decimal
    color: Color | None = None


@dataclass
class Order:
    id: UUID
    lines: list[Line] = field(default_factory=list)
    extra: dict[str, Line | Point | str] = field(default_factory=dict)


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=4)
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, places=2)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
LINES = st.builds(Line, TEXTS, DECIMALS, st.none() | st.sampled_from(Color))
POINTS = st.builds(Point, st.integers(), FLOATS)

# Annotations, with strategies for their values.
HASHABLE: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(),
    str: TEXTS | st.just("$date"),
    bool: st.booleans(),
    bytes: st.binary(max_size=4),
    date: st.dates(),
    time: st.times(),
    datetime: st.datetimes(timezones=st.just(UTC)),
    timedelta: st.timedeltas(),
    Decimal: DECIMALS,
    UUID: st.uuids(),
    Color: st.sampled_from(Color),
    Level: st.sampled_from(Level),
    PurePosixPath: st.builds(PurePosixPath, st.sampled_from(["a", "/a/b", "."])),
    Line: LINES,
}
OTHERS: dict[Any, st.SearchStrategy[Any]] = {
    None: st.none(),
    float: FLOATS,
    Point: POINTS,
    Order: st.builds(
        Order,
        st.uuids(),
        st.lists(LINES, max_size=2),
        st.dictionaries(TEXTS | st.just("$date"), LINES | POINTS | TEXTS, max_size=2),
    ),
}
ALL = {**HASHABLE, **OTHERS}


def generic(kind: Any, *args: Any) -> Any:
    """``kind[args]``, of a type that is computed."""
    return kind[args]


@st.composite
def typed(draw: st.DrawFn, levels: int = 3) -> tuple[Any, st.SearchStrategy[Any]]:
    """An annotation, and a strategy for its values."""
    if not levels or draw(st.booleans()):
        hint = draw(st.sampled_from(list(ALL)))
        return hint, ALL[hint]
    kind = draw(st.sampled_from(["list", "deque", "tuple", "pair", "dict", "sequence", "union"]))
    hint, values = draw(typed(levels - 1))
    match kind:
        case "list":
            return generic(list, hint), st.lists(values, max_size=3)
        case "deque":
            return generic(deque, hint), st.builds(deque, st.lists(values, max_size=3))
        case "tuple":
            return generic(tuple, hint, ...), st.builds(tuple, st.lists(values, max_size=3))
        case "sequence":
            lists = st.lists(values, max_size=3)
            return generic(Sequence, hint), lists | st.builds(tuple, lists)
        case "dict":
            keys = draw(st.sampled_from(list(HASHABLE)))
            of = draw(st.sampled_from([dict, Mapping]))
            return generic(of, keys, hint), st.dictionaries(HASHABLE[keys], values, max_size=3)
        case _:
            other, others = draw(typed(levels - 1))
            if kind == "pair":
                return generic(tuple, hint, other), st.tuples(values, others)
            return generic(Union, hint, other), values | others


def exactly(value: Any) -> Any:
    """A form in which 1, 1.0, True and Level.LOW are not equal."""
    if isinstance(value, dict):
        return dict, [(exactly(key), exactly(each)) for key, each in value.items()]
    if isinstance(value, list | tuple | deque):
        return type(value), [exactly(each) for each in value]
    if isinstance(value, datetime | time):
        return type(value), value.isoformat()  # fold is not stored: the offset is
    return type(value), repr(value)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_it_comes_back(data):
    codec = Codec(on_change=lambda: None)
    hint, values = data.draw(typed())
    value = data.draw(values, label=str(hint))

    of_hint = codec.codec_of(hint)
    text = encode_simple(of_hint.encode(value))
    rewritten = json.dumps(json.loads(text), indent=1)

    assert exactly(of_hint.decode(decode(rewritten))) == exactly(value)
    assert encode_canonical(decode(text))  # limits and unique keys are made of it
