"""The dashboard and the REST API: an ASGI application for one tickwork application.

Mount it into FastAPI, Starlette or Django, or serve it with ``tickwork ui``. It needs the extra
``dashboard``: ``pip install 'tickwork[dashboard]'``.
"""

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from tickwork.app.tickwork import Tickwork
from tickwork.dashboard.access import AccessToken, Identify, Role, Tokens, User
from tickwork.errors import ExtraMissing, InvalidOption

if TYPE_CHECKING:
    from starlette.applications import Starlette

__all__ = ["AccessToken", "Role", "User", "asgi"]

READ_TIMEOUT: Final = timedelta(seconds=5)


def asgi(
    app: Tickwork,
    *,
    tokens: Tokens = (),
    identify: Identify | None = None,
    secret: str = "",
    login_url: str = "",
    read_only: bool = False,
    read_timeout: timedelta = READ_TIMEOUT,
    streams_max: int = 100,
    streams_per_client: int = 20,
    requests_per_minute: int = 3_000,
) -> "Starlette":
    """Make the ASGI application of the dashboard and the REST API.

    It needs ``tokens``, ``identify`` or both. ``tokens`` may be a function that returns the tokens
    that are valid now: it is called for each request. ``identify`` takes a request of Starlette and
    returns the user of the host application, or None; it may be a coroutine function. It raises
    ``PermissionError`` for a user who may not see the dashboard.

    Forms contain a token that is signed with the tokens, or with ``secret``. Without both, a
    process accepts its own forms only. Pages send those who have not logged in to ``login_url``.

    The database ends the reads of a page after ``read_timeout``, so that pages cannot slow down
    the workers. At most ``streams_max`` pages are live at a time, and ``streams_per_client`` of one
    user at one address; others are refused, and show no live changes. A user may make
    ``requests_per_minute`` requests of the API in each process; 0 is no limit.

    Raises:
        ExtraMissing: The extra ``dashboard`` is not installed.
        InvalidOption: There is no token and no ``identify``, a token is too short, or two are
            equal.
    """
    tokens = tokens if callable(tokens) else tuple(tokens)
    if not tokens and identify is None:
        raise InvalidOption(
            "tokens",
            tokens,
            "must have a token, or identify must be a function",
            fix="Pass tokens=[AccessToken(name=…, secret=…, role=…)], or identify=… for the users "
            "of your application. Without one of them everyone could use the dashboard.",
        )
    try:
        from tickwork.dashboard.site import build_site  # noqa: PLC0415  # needs the extra
    except ImportError as error:
        if error.name is None or error.name.startswith("tickwork"):
            raise
        raise ExtraMissing(error.name, extra="dashboard") from error
    site: Any = build_site(
        app,
        tokens=tokens,
        identify=identify,
        secret=secret,
        login_url=login_url,
        is_read_only=read_only,
        read_timeout=read_timeout,
        streams_max=streams_max,
        streams_per_client=streams_per_client,
        requests_per_minute=requests_per_minute,
    )
    return site  # type: ignore[no-any-return]  # Starlette is known to type checkers only
