from datetime import UTC, datetime, timedelta
from uuid import RFC_4122, UUID

from hypothesis import given
from hypothesis import strategies as st

from tickwork._kernel.ids import new_id, new_ids

NOON = datetime(2026, 3, 2, 12, 0, 0, 123_456, tzinfo=UTC)
MOMENTS = st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC))


class TestOneId:
    """An id is a UUID of version 7 that starts with the time it was made."""

    def test_it_is_a_uuid_as_text(self):
        made = new_id(NOON)

        assert str(UUID(made)) == made
        assert (UUID(made).version, UUID(made).variant) == (7, RFC_4122)

    @given(MOMENTS)
    def test_its_first_48_bits_are_the_millisecond(self, moment):
        milliseconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)

        assert UUID(new_id(moment)).int >> 80 == milliseconds

    @given(MOMENTS)
    def test_a_microsecond_later_is_greater(self, moment):
        assert new_id(moment) < new_id(moment + timedelta(microseconds=1))

    def test_two_of_the_same_moment_differ(self):
        assert len({new_id(NOON) for _ in range(1000)}) == 1000


class TestManyIds:
    """Ids made in bulk are the same kind of id, in order."""

    def test_they_ascend_and_differ(self):
        made = list(new_ids(NOON, 1000))

        assert made == sorted(set(made))
        assert len(made) == 1000

    def test_they_are_uuids_too(self):
        assert {UUID(made).version for made in new_ids(NOON, 10)} == {7}
        assert {UUID(made).variant for made in new_ids(NOON, 10)} == {RFC_4122}

    def test_two_batches_of_the_same_moment_do_not_meet(self):
        assert not set(new_ids(NOON, 1000)) & set(new_ids(NOON, 1000))

    def test_a_count_of_zero_gives_no_ids(self):
        assert list(new_ids(NOON, 0)) == []
