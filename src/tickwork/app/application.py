"""What the services of an application use of it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from tickwork._calendars.calendars import Calendars
from tickwork._config.settings import Settings
from tickwork._define.engine_choice import EngineRegistration
from tickwork._define.registry import Registry
from tickwork._dispatch.dispatch import DispatchTracer
from tickwork._domain.schedules.pattern import SymbolRule
from tickwork._handlers.handlers import Construct
from tickwork._handlers.lifecycle import Lifecycle
from tickwork._stores.cipher import Cipher
from tickwork.events.bus import EventBus

if TYPE_CHECKING:
    from tickwork._engines.local.thread_caller import WaitFor
    from tickwork.alerts.registry import Alerts


class Application(Protocol):
    """The parts of an application that its services use."""

    settings: Settings
    registry: Registry
    events: EventBus
    construct: Construct
    lifecycle: Lifecycle
    wait_for: "WaitFor | None"
    symbols: dict[str, SymbolRule]
    calendars: Calendars
    path: str
    created_in: str
    config_files: list[str]
    is_configuration: bool
    cipher: Cipher | None
    tracer: DispatchTracer | None
    engines: Mapping[str, EngineRegistration]
    engine_options: dict[str, Any]

    @property
    def alert_settings(self) -> "Alerts | None":
        """The alerts that the program has configured; None if it has none."""
        ...
