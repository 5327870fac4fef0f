"""Composes the SQL of lists, whose filters vary: the only SQL that is built at run time."""

from tickwork._domain.status import RunStatus
from tickwork.stores._sql.queries import Queries
from tickwork.stores._sql.rows import micros
from tickwork.stores._sql.statement import Statement
from tickwork.stores.contract import RunFilter


def filter_runs(
    query: Queries, name: str, where: RunFilter, *, cursor: str | None, limit: int
) -> Statement:
    """A list query with the conditions of this filter only.

    An unused condition (``:job IS NULL OR job = :job``) could prevent the use of an index.
    """
    params: dict[str, object] = {"limit": limit}
    terms = []

    def add(term: str, **values: object) -> None:
        terms.append(term)
        params.update(values)

    if cursor is not None:
        add("id < :cursor", cursor=cursor)
    if where.tenant is not None:
        add("tenant = :tenant", tenant=where.tenant)
    if where.job is not None:
        add("job = :job", job=where.job)
    if where.queue is not None:
        add("queue = :queue", queue=where.queue)
    if where.schedule is not None:
        add("schedule = :schedule", schedule=where.schedule)
    if where.tag is not None:
        add("{has_tag}", tag=f'"{where.tag}"')
    if where.since is not None:
        add("created_at >= :since", since=micros(where.since))
    if where.before is not None:
        add("created_at < :before", before=micros(where.before))
    if where.is_retry is not None:
        add("retry_of IS NOT NULL" if where.is_retry else "retry_of IS NULL")
    if where.statuses == {RunStatus.RUNNING}:
        add("{is_running}")  # the same condition, by an index
    elif where.statuses:
        if name == "list_history" and RunStatus.COMPLETED not in where.statuses:
            add("status <> 'completed'")  # redundant, but lets the planner use an index
        names = [f"status_{place}" for place in range(len(where.statuses))]
        statuses = sorted(RunStatus(status).value for status in where.statuses)
        add(
            f"status IN ({', '.join(':' + name for name in names)})",
            **dict(zip(names, statuses, strict=True)),
        )
    conditions = f"WHERE {' AND '.join(terms)}\n" if terms else ""
    return query.compose(name, f"{conditions}ORDER BY id DESC\nLIMIT :limit", params)
