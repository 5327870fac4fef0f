import json
from collections import OrderedDict
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import IntEnum, StrEnum
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickwork._payload import codec
from tickwork._payload.codec import NESTING_MAX, decode, encode, encode_canonical
from tickwork.errors import NotSerializable, PayloadTooLarge, PayloadUnreadable

TEXT = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=8)
KEYS = TEXT | st.sampled_from(["$", "$$", "$date", "$$date", "$datetime", "$$$int", "$nope"])
OFFSETS = st.builds(timezone, st.timedeltas(timedelta(hours=-23), timedelta(hours=23)))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
    | KEYS
    | st.datetimes(timezones=OFFSETS | st.just(UTC))
    | st.dates()
    | st.timedeltas()
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.uuids()
    | st.binary(max_size=8)
)
PAYLOADS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=10,
)


def exactly(value: object) -> object:
    """A form in which 1, 1.0 and True, or 0.0 and -0.0, are not equal."""
    if isinstance(value, dict):
        return {key: exactly(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [exactly(inner) for inner in value]
    if isinstance(value, datetime):
        return (datetime, value.isoformat())
    return (type(value), repr(value))


class TestRoundTrip:
    """Every payload that is taken comes back as it went in."""

    @given(PAYLOADS)
    def test_it_comes_back(self, payload):
        assert exactly(decode(encode(payload))) == exactly(payload)

    @pytest.mark.parametrize("microseconds", [1, -1, 999_999, -999_999, 1_000_001])
    def test_an_offset_of_less_than_a_second_is_not_lost(self, microseconds):
        zone = timezone(timedelta(microseconds=microseconds))
        moment = datetime(2000, 1, 1, tzinfo=zone)

        assert decode(encode(moment)).utcoffset() == moment.utcoffset()

    @given(PAYLOADS)
    def test_a_database_may_reformat_the_json(self, payload):
        # PostgreSQL and MySQL put spaces in and change the order of keys. Neither may
        # change a value; that is why odd numbers are tagged.
        rewritten = json.dumps(json.loads(encode(payload)), sort_keys=True, indent=1)

        assert exactly(decode(rewritten)) == exactly(payload)

    @pytest.mark.parametrize(
        ("payload", "text"),
        [
            ({"a": 1, "b": [True, None, "ä"]}, '{"a":1,"b":[true,null,"ä"]}'),
            (2**63 - 1, "9223372036854775807"),
            (2**63, '{"$int":"9223372036854775808"}'),
            (1.5, "1.5"),
            (1e16, '{"$float":"1e+16"}'),
            (-0.0, '{"$float":"-0.0"}'),
            (Decimal("1.50"), '{"$decimal":"1.50"}'),
            (timedelta(hours=-1), '{"$timedelta":[-1,82800,0]}'),
            (b"hello", '{"$bytes":"aGVsbG8="}'),
            (date(2026, 1, 1), '{"$date":"2026-01-01"}'),
            (UUID(int=1), '{"$uuid":"00000000-0000-0000-0000-000000000001"}'),
            ({"$date": 1}, '{"$$date":1}'),
            ({"$date": 1, "b": 2}, '{"$date":1,"b":2}'),
            ({"": 1}, '{"":1}'),
        ],
    )
    def test_the_text(self, payload, text):
        assert encode(payload) == text
        assert decode(text) == payload

    def test_a_datetime_keeps_its_offset_and_loses_the_name_of_its_zone(self):
        moment = datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin"))

        back = decode(encode(moment))

        assert back == moment
        assert back.isoformat() == "2026-07-01T12:00:00+02:00"

    def test_subclasses_become_the_plain_type(self):
        class Colour(StrEnum):
            RED = "red"

        class Size(IntEnum):
            LARGE = 3

        class Ratio(float):
            pass

        payload = OrderedDict({Colour.RED: (Colour.RED, Size.LARGE, Ratio(0.5))})

        assert exactly(decode(encode(payload))) == exactly({"red": ["red", 3, 0.5]})

    def test_white_space_around_it_is_no_matter(self):
        assert decode(' {"a": 1}\n') == {"a": 1}


class TestRefusing:
    """A value without an exact JSON form is an error that names its place."""

    @pytest.mark.parametrize(
        ("payload", "path", "reason"),
        [
            (float("nan"), "payload", "nan is not a finite number"),
            ({"a": [0, float("-inf")]}, "payload['a'][1]", "not a finite number"),
            ({"a": Decimal("sNaN")}, "payload['a']", "not a finite number"),
            ({"a": {1: 2}}, "payload['a']", "key 1 is not a string"),
            ({None: 2}, "payload", "key None is not a string"),
            ([datetime(2026, 1, 1)], "payload[0]", "has no time zone"),
            ({"a": {1, 2}}, "payload['a']", "a set has no order"),
            ({"a": object()}, "payload['a']", "a object has no JSON form"),
            (time(12, tzinfo=ZoneInfo("Europe/Berlin")), "payload", "time zone without an offset"),
            pytest.param([10**5000], "payload[0]", "more digits", id="huge"),
            ("a\x00b", "payload", "NUL"),
            ({"a\x00": 1}, "payload", "NUL"),
            (["\ud800"], "payload", "lone surrogate"),
        ],
    )
    def test_the_error_has_the_path_and_the_reason(self, payload, path, reason):
        with pytest.raises(NotSerializable, match=reason) as caught:
            encode(payload)
        assert caught.value.path == path

    def test_an_escaped_nul_is_only_text(self):
        assert decode(encode(["\\u0000", {"\\u0000": 5}])) == ["\\u0000", {"\\u0000": 5}]

    def test_a_payload_that_contains_itself(self):
        payload: dict[str, object] = {}
        payload["self"] = [payload]

        with pytest.raises(NotSerializable, match="contains itself"):
            encode(payload)

    def test_a_payload_that_is_nested_too_deeply(self):
        assert decode(encode(nested(NESTING_MAX))) == nested(NESTING_MAX)
        with pytest.raises(NotSerializable, match="deeper than 64"):
            encode(nested(NESTING_MAX + 1))

    def test_a_payload_that_is_small_in_memory_and_huge_as_text(self):
        payload: list[object] = []
        for _ in range(60):
            payload = [payload, payload]

        with pytest.raises(PayloadTooLarge):
            encode(payload)

    def test_the_size_is_counted_in_bytes(self):
        assert encode("ä" * 4, size_max=10)
        with pytest.raises(PayloadTooLarge) as caught:
            encode("ä" * 5, size_max=10)
        assert (caught.value.size, caught.value.size_max) == (12, 10)


def nested(levels: int) -> object:
    payload: object = 1
    for _ in range(levels):
        payload = [payload]
    return payload


class TestUnreadable:
    """A text that tickwork did not write is an error of its own kind, whatever is wrong."""

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "  ",
            "{",
            "nope",
            '{"a":1} x',
            "[1,]",
            "NaN",
            "[-Infinity]",
            '{"$nope":1}',
            '{"$uuid":"nope"}',
            '{"$uuid":5}',
            '{"$decimal":"x"}',
            '{"$bytes":"a"}',
            '{"$bytes":"aGVs*bG8="}',
            '{"$datetime":"2026-13-01"}',
            '{"$timedelta":[1,2,3,4,5,6,7,8]}',
            '{"$timedelta":[99999999999,0,0]}',
            '{"$int":null}',
            pytest.param("[" * 100_000, id="deep"),
            pytest.param("9" * 5000, id="long"),
        ],
    )
    def test_it_is_an_error(self, text):
        with pytest.raises(PayloadUnreadable):
            decode(text)

    @given(st.text(max_size=20) | st.text('{}[]":,$a1 ', max_size=20))
    def test_nothing_else_ever_escapes(self, text):
        with suppress(PayloadUnreadable):
            decode(text)


class TestCanonicalForm:
    """Equal payloads give equal text, different ones different text."""

    def test_the_order_of_keys_is_no_matter(self):
        assert encode_canonical({"b": {"d": 1, "c": 2}, "a": 3}) == '{"a":3,"b":{"c":2,"d":1}}'

    def test_the_zone_of_an_instant_is_no_matter(self):
        moment = datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin"))

        assert encode_canonical(moment) == encode_canonical(moment.astimezone(UTC))

    def test_the_first_day_of_the_calendar_has_a_form_too(self):
        first = datetime.min.replace(tzinfo=timezone(timedelta(hours=1)))

        assert encode_canonical(first) == encode(first)

    @given(PAYLOADS, PAYLOADS)
    def test_only_equal_payloads_share_one(self, one, other):
        if encode_canonical(one) == encode_canonical(other):
            assert one == other


@pytest.mark.parametrize(
    "payload", [{"n": 1}, {"text": 'ä "quoted" \\ \n', "yes": True, "none": None, "big": -(2**62)}]
)
def test_plain_arguments_are_written_the_same_with_and_without_a_compiled_encoder(payload):
    [without] = codec._build_encoder(None)(payload, 0)

    assert codec.encode_simple(payload) == without == encode(payload)
