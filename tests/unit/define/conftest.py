"""Modules that exist only while a test runs, without a file.

modules["shop"] = "import blog"      can be imported, and imported again
"""

import sys
from collections.abc import Iterator
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest


class Modules(dict[str, str], MetaPathFinder, Loader):
    """Sources by module name, on Python's own way to find them."""

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        if name not in self:
            return None
        is_package = any(other.startswith(f"{name}.") for other in self)
        return ModuleSpec(name, self, origin=f"{name}.py", is_package=is_package)

    def exec_module(self, module: ModuleType) -> None:
        text = self[module.__name__]
        exec(compile(text, f"{module.__name__}.py", "exec"), module.__dict__)


@pytest.fixture
def modules() -> Iterator[Modules]:
    before = set(sys.modules)
    made = Modules()
    sys.meta_path.insert(0, made)
    yield made
    sys.meta_path.remove(made)
    for name in set(sys.modules) - before:
        if name in made:
            del sys.modules[name]
