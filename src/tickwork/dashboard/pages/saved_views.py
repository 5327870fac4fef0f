"""Views of the page *Runs*: some that every user has, and those that a browser has saved.

A browser keeps its views in a cookie, so they need neither a script nor a table. Others get a view
as its URL.
"""

import json
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from starlette.requests import Request

from tickwork.dashboard.problems import ProblemError

VIEWS_COOKIE: Final = "tickwork_views"
VIEWS_SECONDS: Final = 365 * 24 * 3600
VIEWS_MAX: Final = 12
NAME_MAX: Final = 40
COOKIE_MAX: Final = 3_500


class SavedView(NamedTuple):
    """A name, and the query of its URL."""

    name: str
    query: str


STANDARD_VIEWS: Final = (
    SavedView("Failed in the last hour", "?status=failed_permanent&since=1h"),
    SavedView("Slowest today", "?since=24h&sort=runtime"),
    SavedView("Waited longest today", "?since=24h&sort=wait"),
    SavedView("Skipped", "?status=skipped"),
)


def read_views(request: Request) -> list[SavedView]:
    """The views that this browser has saved. What is not valid is left out."""
    try:
        stored: Any = json.loads(unquote(request.cookies.get(VIEWS_COOKIE, "")))
    except ValueError:
        return []
    return [
        SavedView(name, query)
        for name, query in (stored.items() if isinstance(stored, dict) else ())
        if isinstance(query, str) and query.startswith("?")
    ][:VIEWS_MAX]


def add_view(views: list[SavedView], name: str, query: str) -> str:
    """The cookie with one more view, or with another query of a view.

    Raises:
        ProblemError: The view has no name or no filter, or there are too many.
    """
    name = name.strip()
    if not name or len(name) > NAME_MAX:
        raise ProblemError(422, f"The name of a view has 1 to {NAME_MAX} characters.", field="name")
    if not query.startswith("?"):
        raise ProblemError(422, "A view has at least one filter.", field="query")
    text = _as_cookie([*(each for each in views if each.name != name), SavedView(name, query)])
    if len(views) >= VIEWS_MAX or len(text) > COOKIE_MAX:
        raise ProblemError(422, "Remove a view first: there is no place for another one.")
    return text


def remove_view(views: list[SavedView], name: str) -> str:
    """The cookie without a view."""
    return _as_cookie([each for each in views if each.name != name])


def _as_cookie(views: list[SavedView]) -> str:
    return quote(json.dumps(dict(views), ensure_ascii=False, separators=(",", ":")))
