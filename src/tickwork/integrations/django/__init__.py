"""Tickwork in a Django project, on the project's own database.

Add ``"tickwork.integrations.django"`` to ``INSTALLED_APPS``, and define jobs in the ``jobs.py`` of
your apps::

    from tickwork.integrations.django import app

    @app.job
    def send_welcome(user_id: int) -> None: ...

``app`` is created from the settings of the project at its first use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tickwork.integrations.django.application import app

__all__ = ["app"]


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tickwork.integrations.django.application import app  # noqa: PLC0415  # needs settings

    return app
