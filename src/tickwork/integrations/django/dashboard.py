"""The dashboard inside a Django project, for its own users.

In the ``asgi.py`` of a project::

    application = mount_dashboard(get_asgi_application(), "/jobs")
"""

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any, TypeAlias

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.db import connections
from django.http import HttpRequest
from django.shortcuts import resolve_url

from tickwork.errors import InvalidOption

AsgiApp: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]


def mount_dashboard(
    application: AsgiApp, path: str, *, login_url: str | None = None, **options: Any
) -> AsgiApp:
    """Serve the dashboard under ``path``, and everything else with ``application``.

    Users log in to the project. Those with the permissions ``tickwork.view_runentry`` and
    ``tickwork.view_scheduleentry`` are readers; with both permissions to change, operators; with
    both to delete, administrators. ``login_url`` is that of the settings by default. ``options``
    are those of :func:`tickwork.dashboard.asgi`.

    Raises:
        ExtraMissing: The extra ``dashboard`` is not installed.
        InvalidOption: The path is not one such as ``/jobs``.
    """
    if not path.startswith("/") or path.endswith("/"):
        raise InvalidOption("path", path, "must begin with a slash, and not end with one")
    from tickwork.integrations.django import app  # noqa: PLC0415  # needs settings

    # By name: the dashboard is a package of the same layer.
    site = import_module("tickwork.dashboard").asgi(
        app,
        **{
            "identify": identify_user,
            # So that every process of the server accepts the forms of the others.
            "secret": settings.SECRET_KEY,
            "login_url": login_url or resolve_url(settings.LOGIN_URL),
            **options,
        },
    )

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        root = scope.get("root_path", "")
        below = scope.get("path", "").removeprefix(root)
        if scope["type"] == "http" and (below == path or below.startswith(f"{path}/")):
            await site({**scope, "root_path": root + path}, receive, send)
        else:
            await application(scope, receive, send)

    return serve


async def identify_user(request: Any) -> Any:
    """Find the user of Django's session cookie, as a user of the dashboard.

    None if the cookie is missing, or its session has ended.

    Raises:
        PermissionError: The user has none of the permissions.
    """
    key = request.cookies.get(settings.SESSION_COOKIE_NAME)
    if not key:
        return None
    # Django closes the connections of its own requests only.
    async with ThreadSensitiveContext():
        return await sync_to_async(_find_user)(key)


def _find_user(key: str) -> Any:
    try:
        request = HttpRequest()
        store = import_module(settings.SESSION_ENGINE).SessionStore(key)
        request.session = _SessionCopy(store.load())
        user = get_user(request)
        return _as_dashboard_user(user) if user.is_authenticated and user.is_active else None
    finally:
        connections.close_all()


def _as_dashboard_user(user: Any) -> Any:
    access: Any = import_module("tickwork.dashboard.access")
    for verb, role in (
        ("delete", access.Role.ADMIN),
        ("change", access.Role.OPERATOR),
        ("view", access.Role.READER),
    ):
        names = (f"tickwork.{verb}_runentry", f"tickwork.{verb}_scheduleentry")
        if user.has_perms(names):
            return access.User(name=user.get_username(), role=role)
    raise PermissionError(
        f"The user {user.get_username()} may not see the dashboard: it needs the permissions "
        "tickwork.view_runentry and tickwork.view_scheduleentry."
    )


class _SessionCopy(dict[str, Any]):
    """The values of a session. Django replaces a session that it renews, and sets a new cookie.

    Here no cookie would be sent, so the session is left as it is.
    """

    def flush(self) -> None:
        self.clear()

    def cycle_key(self) -> None: ...
