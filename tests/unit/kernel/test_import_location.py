"""Where another process finds what this one has imported."""

import sys
from types import ModuleType
from typing import NoReturn

from tickwork._kernel import import_location
from tickwork._kernel.import_location import ImportLocation, find_defining_modules


class BusyModules(dict[str, ModuleType]):
    """Another thread imports a module while one looks at them."""

    def items(self) -> NoReturn:
        raise RuntimeError("dictionary changed size during iteration")


def test_modules_are_found_while_another_thread_imports_some(monkeypatch):
    monkeypatch.setattr(sys, "modules", BusyModules(sys.modules))
    find_defining_modules.cache_clear()

    found = find_defining_modules(import_location.__file__, "json")

    assert found == (ImportLocation(import_location.__name__), ImportLocation("json"))
