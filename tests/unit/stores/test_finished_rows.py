"""Rows of finished runs and of their jobs, made from a batch of transitions."""

from datetime import datetime

from tickwork._domain.identity import RunId
from tickwork._domain.runs.transitions import settle_success
from tickwork._stores._sql.operations.record import merge_job_rows
from tickwork._stores._sql.rows import PLAIN_MAPPERS, micros
from unit.builders import NOON, SECOND, a_claim


def test_each_plain_row_has_the_instants_of_its_own_step():
    first, second = NOON + SECOND, NOON + 2 * SECOND
    instants: list[tuple[datetime | None, datetime]] = [
        (NOON, first),
        (first, second),  # started by a pump when the one before it ended
        (None, first),
        (second, second),
        (NOON, NOON),
    ]
    claims = [a_claim(run_id=RunId(str(number))) for number in range(len(instants))]

    rows = PLAIN_MAPPERS.plain_rows(
        settle_success(claim, ended_at, started_at)
        for claim, (started_at, ended_at) in zip(claims, instants, strict=True)
    )

    assert rows == [
        (str(number), 1, None if started_at is None else micros(started_at), micros(ended_at), None)
        for number, (started_at, ended_at) in enumerate(instants)
    ]


def test_a_batch_has_one_row_for_each_job_of_each_tenant():
    steps = [
        settle_success(a_claim(tenant=tenant, job=job), NOON + number * SECOND, NOON)
        for number, (tenant, job) in enumerate(
            [("", "one"), ("", "two"), ("ann", "one"), ("", "one"), ("", "one"), ("ann", "one")]
        )
    ]

    found = {row[:3] for row in merge_job_rows(steps)}

    assert found == {
        ("", "one", micros(NOON + 4 * SECOND)),
        ("", "two", micros(NOON + SECOND)),
        ("ann", "one", micros(NOON + 5 * SECOND)),
    }
