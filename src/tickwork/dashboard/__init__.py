"""The dashboard and the REST API: an ASGI application for one tickwork application.

Mount it into FastAPI, Starlette or Django, or serve it with ``tickwork ui``. It needs the extra
``dashboard``: ``pip install 'tickwork[dashboard]'``.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from tickwork.app import Tickwork
from tickwork.dashboard.access import AccessToken, Identify, Role, User
from tickwork.errors import ExtraMissing

if TYPE_CHECKING:
    from starlette.applications import Starlette

__all__ = ["AccessToken", "Role", "User", "asgi"]

READ_TIMEOUT: Final = timedelta(seconds=5)


def asgi(
    app: Tickwork,
    *,
    tokens: Iterable[AccessToken] = (),
    identify: Identify | None = None,
    secret: str = "",
    login_url: str = "",
    read_only: bool = False,
    read_timeout: timedelta = READ_TIMEOUT,
    streams_max: int = 100,
    streams_per_client: int = 20,
) -> "Starlette":
    """Make the ASGI application of the dashboard and the REST API.

    Without ``tokens`` and ``identify`` it answers only requests from this machine. ``identify``
    takes a request of Starlette and returns the user of the host application, or None; it may be
    a coroutine function. It raises ``PermissionError`` for a user who may not see the dashboard.

    Forms contain a token that is signed with the tokens, or with ``secret``. Without both, a
    process accepts its own forms only. Pages send those who have not logged in to ``login_url``.

    The database ends the reads of a page after ``read_timeout``, so that pages cannot slow down
    the workers. At most ``streams_max`` pages are live at a time, and ``streams_per_client`` of one
    user at one address; others are refused, and show no live changes.

    Raises:
        ExtraMissing: The extra ``dashboard`` is not installed.
        InvalidOption: A token is too short, or two tokens are equal.
    """
    try:
        from tickwork.dashboard.site import build_site  # noqa: PLC0415  # needs the extra
    except ImportError as error:
        if error.name is None or error.name.startswith("tickwork"):
            raise
        raise ExtraMissing(error.name, extra="dashboard") from error
    site: Any = build_site(
        app,
        tokens=tuple(tokens),
        identify=identify,
        secret=secret,
        login_url=login_url,
        is_read_only=read_only,
        read_timeout=read_timeout,
        streams_max=streams_max,
        streams_per_client=streams_per_client,
    )
    return site  # type: ignore[no-any-return]  # Starlette is known to type checkers only
