"""The filters of the page *Runs*: what a URL has, and links that change one of them."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlencode

from starlette.requests import Request

from tickwork._inspect.run_search import RunOrder
from tickwork.dashboard import fields
from tickwork.dashboard.api import RUN_QUERY
from tickwork.dashboard.display_zone import DisplayZone, read_past_time
from tickwork.dashboard.pages.request_values import base_of

TIMES: Final = frozenset({"since", "before"})
LISTS: Final = frozenset({"status", "arg"})


def read_run_query(request: Request, *, now: datetime, zone: DisplayZone) -> dict[str, Any]:
    """The filters of a URL. Its times may also be ``2h`` (ago), or have no offset."""
    items = [
        (name, read_past_time(text, now=now, zone=zone) if name in TIMES and text else text)
        for name, text in request.query_params.multi_items()
    ]
    return fields.read_query(RUN_QUERY, items)


def is_search(given: Mapping[str, Any]) -> bool:
    """Whether runs must be read to find those that match."""
    return bool(given.get("text") or given.get("arg") or given.get("error") or "longer" in given)


def run_query_values(request: Request) -> dict[str, Any]:
    """The filters as the form shows them, and functions that make links."""
    params = request.query_params
    values: dict[str, Any] = {
        each.name: params.getlist(each.name) if each.name in LISTS else params.get(each.name, "")
        for each in RUN_QUERY
    }

    def query_with(**changes: Any) -> str:
        # A cursor is valid only for the filters that it was made with.
        return query_text({**values, "cursor": "", **changes})

    def link(**changes: Any) -> str:
        return f"{base_of(request)}/runs{query_with(**changes)}"

    ignored = {"cursor", "sort"}
    return {
        "query": values,
        "link": link,
        "query_with": query_with,
        "query_text": query_with(),
        "orders": list(RunOrder),
        "is_filtered": any(value for name, value in values.items() if name not in ignored),
        "has_more_filters": any(values[name] for name in ("worker", "longer", "tag", "arg")),
    }


def query_text(values: Mapping[str, Any]) -> str:
    pairs = [
        (name, each)
        for name, value in values.items()
        for each in (value if isinstance(value, list | tuple) else [value])
        if each
    ]
    return f"?{urlencode(pairs, errors='replace')}" if pairs else ""
