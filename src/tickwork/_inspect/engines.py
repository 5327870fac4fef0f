"""Whether the brokers of remote engines answer, for ``tickwork doctor``."""

from collections.abc import Callable, Mapping
from typing import Any

from tickwork._define.engine_choice import EngineRegistration, load_function
from tickwork._define.registry import Registry
from tickwork._domain.health import Check, bad, ok
from tickwork.errors import TickworkError


def check_engines(
    engines: Mapping[str, EngineRegistration], registry: Registry, options: Mapping[str, Any]
) -> list[Check]:
    """Check the remote engines that jobs of this program choose."""
    chosen = {definition.options.engine for definition in registry.definitions().values()}
    return [
        _check(name, load_function(registration.check), options.get(name))
        for name, registration in engines.items()
        if name in chosen and registration.check
    ]


def _check(name: str, check: Callable[[Any], str], options: Any) -> Check:
    title = f"engine {name}"
    try:
        return ok(title, f"It answers: {check(options)}.")
    except TickworkError as error:
        text = f"{error.what} {error.why}".strip()
        return bad(title, text, error.fix)
