"""Executes printed code, and computes the firings of the schedules that it defines."""

import sys
from datetime import UTC, datetime
from itertools import islice
from types import ModuleType

from tickwork import Tickwork
from tickwork._domain.schedules.contract import Rule, walk
from tickwork._migration.definitions import ImportedSchedules

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


def execute(found: ImportedSchedules, **modules: ModuleType) -> Tickwork:
    """Execute the code, with these modules to import."""
    space: dict[str, object] = {"__name__": "printed"}
    code = found.code.replace("Tickwork()", 'Tickwork("memory://")')
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        exec(compile(code, "<printed>", "exec"), space)
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
    app = space["app"]
    assert isinstance(app, Tickwork)
    return app


def rules_of(app: Tickwork) -> dict[str, Rule]:
    return {
        each.name: each.timing.rule(tz="UTC", anchor=NOW, key=each.name)
        for each in app.registry.schedules()
    }


def firings(rule: Rule, count: int = 60, *, after: datetime = NOW) -> list[datetime]:
    return [at.astimezone(UTC) for at in islice(walk(rule, after), count)]
