"""A rate limit allows a number of starts in any window, and delays runs no longer than needed."""

from bisect import bisect_left
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tickwork._domain.limits.limits import Candidate, Limit, decide_grants, keys_needed, slots_in
from tickwork._domain.limits.rates import (
    Rate,
    Turn,
    as_window,
    describe_rate,
    is_rate,
    window_of,
    window_text,
)
from tickwork.errors import InvalidOption

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
KEY = "job/minute:send_email"


def seconds(moments):
    return [(moment - NOON).total_seconds() for moment in moments]


@dataclass
class Store:
    """What a store does with a rate, for one key: runs are the order in which they came."""

    starts_max: int = 3
    window: timedelta = MINUTE
    now: datetime = NOON
    rate: Rate = field(default=Rate(0, MINUTE))
    ready: list[int] = field(default_factory=list)
    blocked: list[int] = field(default_factory=list)
    starts: list[datetime] = field(default_factory=list)
    order: list[int] = field(default_factory=list)

    def seen(self, most):
        """What a store reads: no more of the past than it needs."""
        low = self.rate.number - self.starts_max
        top = low + self.rate.opened + most + 1
        past = {number: at for number, at in self.rate.past.items() if low < number <= top}
        return self.rate._replace(starts_max=self.starts_max, window=self.window, past=past)

    def keep(self, rate):
        past = {**self.rate.past, **rate.past}
        kept = {number: at for number, at in past.items() if number > rate.forgotten}
        self.rate = rate._replace(past=kept)

    def claim(self, most=1000, *, now=None):
        now = self.now if now is None else now
        rate = self.seen(len(self.ready[:most]))
        room = rate.room(now=now, most=most)
        granted = self.ready[: min(room, most)]
        found_none = [] if len(granted) == most else self.ready[len(granted) : most]
        self.ready = self.ready[len(granted) + len(found_none) :]
        self.blocked = sorted(self.blocked + found_none)
        self.starts += [now] * len(granted)
        self.order += granted
        self.keep(rate.add_starts(len(granted), now=now, is_blocked=bool(found_none)))
        return len(granted)

    def turn(self):
        rate = self.seen(self.starts_max // 10 + 1)
        if not rate.is_due(now=self.now):
            return 0
        out, rate = rate.open_turn(now=self.now)
        self.ready = sorted(self.ready + self.blocked[:out])
        self.blocked = self.blocked[out:]
        self.keep(rate if self.blocked else rate.clear_turn())
        return out

    def work_until(self, end, *, late=timedelta(0)):
        """Move the time from turn to turn. A worker opens each turn, perhaps a bit late."""
        for _ in range(100_000):
            self.claim()
            if self.rate.next_start_at is None or self.rate.next_start_at + late > end:
                return
            self.now = max(self.now, self.rate.next_start_at + late)
            self.turn()
        raise AssertionError("it never ends")


def most_in_any(window, starts):
    """The largest number of starts in a stretch of this length, wherever it begins."""
    ordered = sorted(starts)
    return max(
        (bisect_left(ordered, at + window) - place for place, at in enumerate(ordered)), default=0
    )


class TestStarting:
    """A run starts at once while there is room."""

    def test_as_many_as_fit_start_together(self):
        store = Store(3, ready=[1, 2, 3, 4, 5])

        assert store.claim() == 3
        assert store.blocked == [4, 5]

    def test_the_turn_of_the_next_comes_when_the_first_has_left_the_window(self):
        store = Store(3, ready=[1])
        store.claim()
        store.now += 10 * SECOND
        store.ready = [2, 3, 4]
        store.claim()

        assert seconds([store.rate.next_start_at]) == [60]

    def test_a_window_is_open_at_one_end(self):
        store = Store(1, ready=[1])
        store.claim()
        store.now = NOON + MINUTE

        store.ready = [2]
        assert store.claim() == 1

    def test_they_come_back_into_the_window_one_by_one(self):
        store = Store(3, ready=list(range(10)))

        store.work_until(NOON + 2 * MINUTE)

        assert seconds(store.starts) == [0, 0, 0, 60, 80, 100, 120]

    def test_no_more_is_known_of_the_past_than_needed(self):
        store = Store(3, ready=list(range(100)))
        store.work_until(NOON + 5 * MINUTE)

        assert len(store.rate.past) == 3

    def test_a_later_run_does_not_overtake(self):
        store = Store(2, ready=[1, 2, 3, 4])
        store.claim()
        store.now += MINUTE  # the turn of 3 is due, and no worker has opened it yet

        store.ready = [5]
        assert store.claim() == 0
        store.turn()
        assert store.ready == [3]

    def test_when_no_run_is_blocked_all_runs_start_at_once(self):
        store = Store(2, ready=[1, 2, 3])
        store.claim()
        store.now += MINUTE
        store.turn()
        store.claim()

        assert (store.rate.next_start_at, store.rate.opened) == (None, 0)
        store.ready = [4]
        assert store.claim() == 1

    def test_a_start_counts_from_no_earlier_than_the_one_before_it(self):
        store = Store(2, ready=[1])
        store.claim(now=NOON + SECOND)
        store.ready = [2]
        store.claim(now=NOON)  # read its clock first, but came second

        assert seconds(store.rate.past.values()) == [1, 1]

    def test_a_slow_clock_starts_no_run_too_early(self):
        store = Store(1, ready=[1])
        store.claim(now=NOON + SECOND)
        store.ready = [2]

        assert store.claim(now=NOON + MINUTE) == 0
        assert store.rate.next_start_at == NOON + SECOND + MINUTE


class TestTurns:
    """Waiting runs are unblocked one by one, and an unused turn is not lost."""

    def waiting(self, count=100, starts_max=60):
        store = Store(starts_max, ready=list(range(count + starts_max)))
        store.claim()
        store.now += MINUTE
        return store

    def test_one_at_a_time(self):
        store = self.waiting()

        assert store.turn() == 1
        assert seconds([store.rate.next_start_at]) == [61]
        assert store.turn() == 0

    def test_a_look_that_comes_late_makes_up_for_a_tenth_of_the_window(self):
        store = self.waiting()
        store.now += 2 * SECOND
        assert store.turn() == 3

        store = self.waiting()
        store.now += 30 * SECOND
        assert store.turn() == 7

    def test_an_unused_turn_goes_to_another_run(self):
        store = self.waiting()
        store.turn()
        store.ready.clear()  # canceled
        store.now += SECOND
        assert store.turn() == 1
        assert store.rate.opened == 2

        # The unblocked runs have not started while there is room.
        store.now += 10 * MINUTE
        for _ in range(20):
            store.ready.clear()
            store.turn()
            store.now += SECOND
        assert store.rate.opened <= 60
        store.claim()
        assert store.turn() > 0

    def test_if_unblocked_runs_do_not_start_others_follow(self):
        store = self.waiting(count=1000)
        store.now += 10 * MINUTE
        outs = []
        for _ in range(600):
            outs.append(store.turn())
            store.now += SECOND / 5

        assert sum(outs) <= 7 + 120  # a tenth of the window at once, then one a second
        assert (store.rate.opened, max(outs[1:])) == (60, 1)

    def test_less_room_closes_what_was_opened(self):
        store = self.waiting()
        store.turn()
        store.starts_max = 1
        store.now = store.rate.next_start_at
        store.claim()
        store.now = store.rate.next_start_at

        store.turn()

        assert most_in_any(MINUTE, store.starts[60:]) <= 1

    def test_without_a_limit_all_runs_are_unblocked(self):
        store = self.waiting()
        store.starts_max = 0

        assert store.turn() == 1000
        assert store.rate.next_start_at is None

    def test_when_it_is_whose_turn(self):
        rate = self.waiting().seen(0)

        assert seconds([rate.turn_of(1), rate.turn_of(4)]) == [60, 63]
        assert rate.clear_turn().turn_of(1) is None

    def test_for_people(self):
        turn = Turn(KEY, 100, 1200, NOON)

        assert str(turn) == (
            "job/minute:send_email (100 a minute): place 1,200, "
            "not before 2026-03-02T12:00:00+00:00"
        )


lengths = st.sampled_from([0.0, 0.0, 0.001, 0.3, 1.0, 7.0, 30.0, 60.0, 61.0, 200.0])


class TestAlways:
    """Properties for any sequence of runs."""

    @settings(max_examples=200)
    @given(
        starts_max=st.integers(1, 12),
        deeds=st.lists(
            st.tuples(
                st.sampled_from(
                    ["come", "come", "claim", "claim", "turn", "turn", "cancel", "lag"]
                ),
                st.integers(1, 15),
                lengths,
            ),
            max_size=60,
        ),
    )
    def test_never_more_than_so_many_in_any_window(self, starts_max, deeds):
        store, number = Store(starts_max), 0
        for deed, count, length in deeds:
            store.now += timedelta(seconds=length)
            match deed:
                case "come":
                    store.ready += range(number, number + count)
                    number += count
                case "claim":
                    store.claim(count)
                case "turn":
                    store.turn()
                case "cancel":
                    del store.ready[:count], store.blocked[: count // 2]
                case _:  # a worker that read its clock a while ago
                    store.claim(count, now=store.now - timedelta(seconds=min(length, 5)))
            # Every blocked run has a turn, whatever happened to the runs before it.
            assert not store.blocked or store.rate.next_start_at is not None

        assert most_in_any(MINUTE, store.starts) <= starts_max

    @settings(max_examples=100)
    @given(
        starts_max=st.integers(1, 50),
        crowd=st.integers(1, 200),
        late=st.sampled_from([0, 1, 10, 1000]),
    )
    def test_no_run_waits_longer_than_needed(self, starts_max, crowd, late):
        store = Store(starts_max, ready=list(range(crowd)))
        store.work_until(NOON + timedelta(days=1), late=timedelta(milliseconds=late))

        assert store.order == sorted(store.order)
        assert len(store.starts) == crowd
        step = MINUTE / starts_max
        for number, at in enumerate(seconds(store.starts)):
            lap = number // starts_max
            # The first ones at once; then one by one, each lap a window after the one before it,
            # as late as the worker was, once in each round.
            place = 0 if lap == 0 else number % starts_max
            grid = (lap * MINUTE + place * step).total_seconds()
            assert grid - 0.001 <= at <= grid + (lap + 1) * (late / 1000 + 0.001)

    @settings(max_examples=100)
    @given(starts_max=st.integers(1, 40), gaps=st.lists(lengths, max_size=80))
    def test_runs_at_a_lower_rate_are_not_delayed(self, starts_max, gaps):
        """A run that finds room in the window starts at once."""
        store = Store(starts_max)
        for number, gap in enumerate(gaps):
            store.now += timedelta(seconds=gap)
            recent = [at for at in store.starts if at > store.now - MINUTE]
            if len(recent) < starts_max:
                store.ready = [number]
                assert store.claim() == 1


class TestWindows:
    """A window as an option, and in a key."""

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ("second", "second"),
            ("minute", "minute"),
            (60, "minute"),
            ("1h", "hour"),
            ("day", "day"),
            (timedelta(days=7), "week"),
            ("90s", "1m30s"),
            ("250ms", "250ms"),
        ],
    )
    def test_keys_contain_the_window(self, options, text):
        window = as_window(options)

        assert window_text(window) == text
        assert window_of(f"account+queue/{text}:send=42") == window

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ("minutes", "Did you mean 'minute'"),
            ("queue", "by='queue'"),
            ("month", "one of second, minute"),
            (0, "between"),
            ("100us", "between"),
            ("5 weeks", "between"),
            (True, "a length of time"),
            (None, "a length of time"),
        ],
    )
    def test_invalid_windows_are_errors(self, options, words):
        with pytest.raises(InvalidOption, match=words):
            as_window(options)

    def test_describe_rate(self):
        assert describe_rate(1000, timedelta(hours=1)) == "1,000 an hour"


class TestKeys:
    """Rates are limits whose keys say so."""

    def test_the_key_of_a_rate_contains_the_window(self):
        rate = Limit(100, ("account_id",), MINUTE)

        key = rate.key(job="send", queue="emails", args={"account_id": 42})
        assert key == "account_id/minute:send=42"
        assert is_rate(key)
        assert rate.parameters == ("account_id",)

    def test_two_rates_of_a_job_are_two_limits(self):
        names = {
            Limit(100, window=MINUTE).name(job="send", queue="q"),
            Limit(5, window=SECOND).name(job="send", queue="q"),
            Limit(5).name(job="send", queue="q"),
        }

        assert len(names) == 3

    @pytest.mark.parametrize(
        "key", ["job:a/b", "account:send=a/b", "@schedule:a/b", "queue:a/minute"]
    )
    def test_a_slash_elsewhere_makes_no_rate(self, key):
        assert not is_rate(key)

    def test_nothing_at_all_is_no_rate(self):
        with pytest.raises(InvalidOption, match=r"pause the job") as caught:
            Limit(0, window=MINUTE)

        assert "rate" in str(caught.value)

    def test_what_a_run_needs(self):
        keys = ("job:send", KEY, "queue:emails")

        assert keys_needed(keys, now=NOON) == keys
        assert keys_needed(keys, held={"job:send"}, now=NOON) == (KEY, "queue:emails")
        assert slots_in(keys) == ("job:send", "queue:emails")

    def test_an_expired_run_does_not_count(self):
        keys = ("job:send", KEY)

        assert keys_needed(keys, expires_at=NOON, now=NOON) == keys
        assert keys_needed(keys, expires_at=NOON - SECOND, now=NOON) == ("job:send",)

    def test_grants_keep_to_it(self):
        runs = [Candidate(name, (KEY, "job:send")) for name in "abc"]  # type: ignore[arg-type]

        grants = decide_grants(
            runs, taken={}, slots_by_limit={"job:send": 3}, starts_by_rate={KEY: 2}
        )

        assert grants.granted == ["a", "b"]
        assert grants.blocked_on == {"c": KEY}
        assert grants.room_by_key == {"job:send": 1}
