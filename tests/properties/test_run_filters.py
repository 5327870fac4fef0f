"""Every filter of listed runs finds the same runs in a store on SQL as in the independent store."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice
from random import Random
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contract.builders import ANN, BOB, HOUR, MINUTE, NOON, StoreDriver, a_fired_run, a_run, add
from oracle.store import OracleStore
from tickwork._domain.runs.outcome import Canceled, Failed, Outcome, Skipped, Succeeded
from tickwork._domain.runs.run import NewRun
from tickwork._domain.runs.status import RunStatus
from tickwork._stores import Store, open_store
from tickwork._stores.contract import RunFilter
from tickwork.testing import ManualClock

RUNS: Final = 120
TEXTS: Final = (
    *("red", "Red", "re", "täg", "TÄG", "標", "a b", "[", "]", ",", "%", "_", "'", ":tag", "u00e4"),
    *('"', 'x"red"y', 'x"red', "\\", "red\\", 'x"red\\', "\\u00e4", '", "red', "🎯"),
)
TAGS: Final = [*TEXTS, "x, red", "null", "\\\\"]
OUTCOMES: Final[tuple[Outcome, ...]] = (
    *(Succeeded(), Failed("no"), Skipped("closed"), Canceled("as requested")),
)
KINDS: Final = [
    pytest.param(kind, marks=[] if kind == "sqlite" else [pytest.mark.servers(kind)])
    for kind in ("sqlite", "postgres", "mariadb")
]


def some_runs(random: Random) -> Iterator[NewRun]:
    last: NewRun | None = None
    while True:  # the caller takes as many as it needs
        options: dict[str, Any] = {
            "job": random.choice([*TEXTS[:4], "mail"]),
            "queue": random.choice([*TEXTS, "default"]),
            "tenant": random.choice(["", "", *TEXTS]),
            "tags": tuple(random.sample(TAGS, random.choice([0, 1, 1, 2, 3]))),
            "created_at": NOON + MINUTE * random.randrange(10),
        }
        if last is not None and random.random() < 0.2:
            options["retry_of"] = last.id
        made = a_run if random.random() < 0.7 else a_fired_run
        if made is a_fired_run:
            options["schedule"] = random.choice(TEXTS)
        last = made(**options)
        yield last


def fill(store: Store, runs: list[NewRun]) -> None:
    """Add the runs, and finish half of them."""
    add(store, *runs)
    worker = StoreDriver(store, ManualClock(NOON + HOUR))
    for number, claim in enumerate(sorted(worker.claim(RUNS * 3 // 4), key=lambda one: one.run_id)):
        if number % 3:
            worker.record(claim, OUTCOMES[number % len(OUTCOMES)])


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


moments: Final[st.SearchStrategy[datetime]] = st.integers(-1, 11).map(
    lambda minutes: NOON + timedelta(minutes=minutes)
)
texts: Final = st.sampled_from(TEXTS)
filters: Final = st.builds(
    RunFilter,
    tenant=maybe(st.just("") | texts),
    job=maybe(texts),
    queue=maybe(texts),
    statuses=st.sets(st.sampled_from(RunStatus)).map(frozenset),
    schedule=maybe(texts),
    tag=maybe(st.sampled_from(TAGS)),
    since=maybe(moments),
    before=maybe(moments),
    is_retry=maybe(st.booleans()),
    worker=maybe(st.sampled_from([ANN, BOB])),
    is_suspended=st.booleans(),
)
one_text: Final = st.one_of(
    *(st.builds(RunFilter, **{name: texts}) for name in ("tenant", "job", "queue", "schedule")),
    st.builds(RunFilter, tag=st.sampled_from(TAGS)),
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_filter_finds_what_it_names(kind, request):
    if kind == "sqlite":
        url = f"sqlite:///{request.getfixturevalue('tmp_path')}/jobs.db?synchronous=NORMAL"
    else:
        url = request.getfixturevalue(f"{kind}_url")
    runs = list(islice(some_runs(Random(4711)), RUNS))
    oracle, sql = OracleStore(), open_store(url)
    sql.install()
    for store in (oracle, sql):
        fill(store, runs)

    @settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
    @given(where=filters | one_text, limit=st.sampled_from([3, RUNS]))
    def compare(where: RunFilter, limit: int) -> None:
        expected, found = (store.list_runs(where, limit=limit) for store in (oracle, sql))
        assert [run.id for run in found.runs] == [run.id for run in expected.runs]
        assert found.cursor == expected.cursor
        summaries = sql.list_summaries(where, limit=limit)
        assert [run.id for run in summaries.runs] == [run.id for run in expected.runs]

    compare()
    sql.close()
