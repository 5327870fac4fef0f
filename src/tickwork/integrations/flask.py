"""For Flask: every attempt has an application context, and ``flask tickwork`` has the commands."""

from collections.abc import Callable, Iterator
from threading import Lock
from typing import TYPE_CHECKING, Any

from tickwork._handlers.context import RunContext
from tickwork._handlers.handlers import import_handler
from tickwork.app.tickwork import Tickwork
from tickwork.errors import DefinitionError

if TYPE_CHECKING:
    from flask import Flask

__all__ = ["FlaskTickwork"]


class FlaskTickwork:
    """Connects jobs with a Flask application, at once or with :meth:`init_app`.

    ``create_app`` is a function without arguments, or its path. It makes the Flask application in
    processes that do not load it by themselves: a worker that is started with ``tickwork work``,
    and the children of ``engine="process"``::

        jobs = Tickwork("sqlite:///jobs.db")
        extension = FlaskTickwork(jobs, create_app="shop.web:create_app")

        def create_app() -> Flask:
            web = Flask("shop")
            extension.init_app(web)
            return web
    """

    def __init__(
        self,
        jobs: Tickwork,
        web: "Flask | None" = None,
        *,
        create_app: "Callable[[], Flask] | str | None" = None,
    ) -> None:
        self.jobs: Tickwork = jobs
        self._web: Flask | None = None
        self._create_app = create_app
        self._lock = Lock()
        jobs.middleware(self._push_context)
        if web is not None:
            self.init_app(web)

    def init_app(self, web: "Flask", *, command: str = "tickwork") -> None:
        """Use this application for attempts, and add the commands below ``flask tickwork``.

        If it is called several times, as in tests, the last application is used.
        """
        web.extensions["tickwork"] = self
        web.cli.add_command(self.jobs.cli(), command)
        self._web = web

    @property
    def web(self) -> "Flask":
        """The Flask application.

        Raises:
            DefinitionError: There is none, and no function that makes one.
        """
        if self._web is None:
            with self._lock:
                if self._web is None:
                    self._web = self._create()
        return self._web

    def _create(self) -> "Flask":
        create = self._create_app
        if create is None:
            raise DefinitionError(
                "The jobs have no Flask application.",
                why="This process has not called init_app().",
                fix='Start the worker with "flask tickwork work", or set '
                'FlaskTickwork(jobs, create_app="shop.web:create_app").',
            )
        function: Any = import_handler(create) if isinstance(create, str) else create
        web: Flask = function()
        return web

    def _push_context(self, _: RunContext) -> Iterator[None]:
        with self.web.app_context():
            yield
