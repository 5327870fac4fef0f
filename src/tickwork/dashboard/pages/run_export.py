"""All runs that match, as CSV or JSON: streamed page by page, however many they are."""

import csv
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import fields
from typing import Any, Final

from starlette.responses import StreamingResponse

from tickwork._inspect.run_search import RunList
from tickwork._inspect.runs import RunView
from tickwork._kernel.json_form import as_json

COLUMNS: Final = [field.name for field in fields(RunView)]
ReadPage = Callable[[str | None], Awaitable[RunList]]


async def stream_export(read: ReadPage, *, kind: str) -> StreamingResponse:
    """A response with all runs; ``read`` reads the page after a cursor.

    The first page is read before the response begins, so that its errors are shown. An error of a
    later page breaks the connection: the file is not complete, and the client reports that.
    """
    first = await read(None)
    form, media_type = _FORMS[kind]
    headers = {"Content-Disposition": f'attachment; filename="runs.{kind}"'}
    return StreamingResponse(form(_pages(read, first)), media_type=media_type, headers=headers)


async def _pages(read: ReadPage, first: RunList) -> AsyncIterator[list[dict[str, Any]]]:
    page = first
    while True:  # until the last page
        yield [as_json(run) for run in page.runs]
        if page.cursor is None:
            return
        page = await read(page.cursor)


async def _as_csv(pages: AsyncIterator[list[dict[str, Any]]]) -> AsyncIterator[str]:
    yield _csv_lines([COLUMNS])
    async for rows in pages:
        yield _csv_lines([_csv_cell(row[name]) for name in COLUMNS] for row in rows)


async def _as_json_list(pages: AsyncIterator[list[dict[str, Any]]]) -> AsyncIterator[str]:
    separator = "["
    async for rows in pages:
        if rows:  # in one part: each costs the server as much as a row
            yield f"{separator}\n" + ",\n".join(map(json.dumps, rows))
            separator = ","
    yield "[]\n" if separator == "[" else "\n]\n"


_FORMS: Final = {
    "csv": (_as_csv, "text/csv; charset=utf-8"),
    "json": (_as_json_list, "application/json"),
}


def _csv_lines(rows: Iterable[list[str]]) -> str:
    target = io.StringIO()
    csv.writer(target).writerows(rows)
    return target.getvalue()


def _csv_cell(value: Any) -> str:
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value)
    # A spreadsheet would execute a cell that begins like a formula.
    return f"'{text}" if text[:1] in {"=", "+", "-", "@", "\t", "\r"} else text
