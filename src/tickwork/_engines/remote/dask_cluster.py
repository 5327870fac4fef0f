"""What the engines of Dask share: options, a client of the scheduler, applications on workers."""

import atexit
import threading
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from tickwork._engines.wire import AppLocation
from tickwork.errors import EngineError, EngineMissing, EngineUnavailable, InvalidOption

CONNECT_SECONDS: Final = 3.0
"""Seconds for an answer of the scheduler, because a person or a stop may wait for it."""


def check_location(location: AppLocation, engine: str) -> AppLocation:
    """Check that Dask workers can import the application.

    Raises:
        InvalidOption: They cannot.
    """
    if not location.module:
        file = location.file or location.config_files[0]
        raise InvalidOption(
            "engine",
            engine,
            "needs an application in a module that the Dask workers can import",
            fix=f"Move it from {file} to a module of a package.",
        )
    return location


def check_options(own_options: object, engine: str) -> Mapping[str, Any]:
    """Return the arguments of a client.

    Raises:
        EngineMissing: The package ``distributed`` is not installed.
        InvalidOption: There is no address.
    """
    if find_spec("distributed") is None:
        raise EngineMissing("distributed", extra="dask")
    options = {"address": own_options} if isinstance(own_options, str) else own_options
    if not isinstance(options, Mapping) or not options.get("address"):
        raise InvalidOption(
            f"engine_options[{engine!r}]",
            own_options,
            "must be the address of a Dask scheduler, or arguments of distributed.Client",
            fix=f'Write app.engine_options["{engine}"] = "tcp://scheduler:8786".',
        )
    return options


class DaskConnection:
    """A client of a scheduler, which is replaced when it has lost its connection."""

    def __init__(self, options: Mapping[str, Any], engine: str) -> None:
        self._options = options
        self._engine = engine
        self._client: Any = None

    @property
    def is_lost(self) -> bool:
        return self._client is None or self._client.status != "running"

    def connect(self) -> Any:
        """Return the client.

        Raises:
            EngineUnavailable: The scheduler does not answer.
        """
        if not self.is_lost:
            return self._client
        distributed: Any = import_module("distributed")
        self.close()
        try:
            self._client = distributed.Client(
                **{
                    "timeout": CONNECT_SECONDS,
                    "set_as_default": False,
                    "name": "tickwork",
                    **self._options,
                }
            )
        except (OSError, TimeoutError, ValueError) as error:
            raise self.unavailable_error(error) from None
        return self._client

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):  # the scheduler may be gone
                client.close(timeout=1)

    def unavailable_error(self, error: BaseException) -> EngineError:
        reason = str(error) or type(error).__name__
        return EngineUnavailable(self._engine, str(self._options["address"]), reason=reason)


class LoadedApps:
    """The applications that a Dask worker has imported."""

    lock: threading.Lock = threading.Lock()
    by_path: dict[str, Any] = {}  # noqa: RUF012  # one for the process


def load_app(module: str, attribute: str) -> Any:
    """Import an application in a Dask worker, once."""
    path = f"{module}:{attribute}"
    with LoadedApps.lock:
        app = LoadedApps.by_path.get(path)
        if app is None:
            app = getattr(import_module(module), attribute)
            LoadedApps.by_path[path] = app
            atexit.register(app.close)
        return app
