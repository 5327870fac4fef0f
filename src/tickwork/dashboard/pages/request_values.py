"""What pages and forms read of a request."""

from typing import Final, NamedTuple
from urllib.parse import unquote

from starlette.requests import Request

from tickwork._domain.identity import RunId
from tickwork.dashboard import fields
from tickwork.dashboard.fields import FieldKind
from tickwork.dashboard.problems import ProblemError

FLASH_COOKIE: Final = "tickwork_flash"
BASE: Final = "tickwork_base"  # the key of the mount path in the scope of a request


class Flash(NamedTuple):
    """One message, shown on the next page."""

    tone: str
    text: str


def base_of(request: Request) -> str:
    """The path under which the dashboard is mounted."""
    return str(request.scope.get(BASE, "")).rstrip("/")


def local_path(request: Request) -> str:
    """The path of a page below the mount."""
    base = base_of(request)
    return request.url.path.removeprefix(base) or "/"


def run_id_of(request: Request) -> RunId:
    """The run that a path names."""
    return RunId(parse_or_404(fields.RUN_ID, request.path_params["id"]))


def name_of(request: Request) -> str:
    """The schedule that a path names."""
    return parse_or_404(fields.NAME, request.path_params["name"])


def tenant_of(request: Request) -> str:
    return parse_or_404(fields.TEXT, request.query_params.get("tenant", ""))


def parse_or_404(kind: FieldKind, text: str) -> str:
    try:
        return str(kind.parse(text, True))
    except ValueError:
        raise ProblemError(404, "There is no such page.") from None


def read_flash(request: Request) -> Flash | None:
    tone, separator, text = request.cookies.get(FLASH_COOKIE, "").partition("|")
    if not separator or tone not in {"good", "bad"}:
        return None
    return Flash(tone, unquote(text))
