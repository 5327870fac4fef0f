"""What a row may name by path: handler classes that a module below the prefixes defines."""

import sys

import pytest

from tickwork import Tickwork
from tickwork._define.registry import Registry
from tickwork.errors import HandlerNotAllowed, HandlerNotFound

LIBRARY = """
class Handler:
    def handle(self): return "library"

class Quiet:
    pass

class Odd(type):
    def __getattr__(cls, name):
        assert name.startswith("__"), f"{name} was read"
        raise AttributeError(name)
"""

SHOP = """
import importlib
import os
import subprocess
from functools import partial

import library
from library import Handler
from library import Handler as Alias
from shop.mail import Send, _Hidden
from shop.mail import _Hidden as Shown
from tickwork import Tickwork

app = Tickwork("memory://", handler_paths=["shop"])

@app.job
def daily(): return "daily"

@app.job(name="renamed")
class Marked:
    def handle(self): return "marked"

def send(to="ann"): return to

async def fetch(): return None

class Outer:
    class Inner:
        def handle(self): return "inner"
    class _Inner:
        def handle(self): return "inner"
    module = os
    instance = Send()
    foreign = Handler
    @staticmethod
    def handle(): return "outer"
    @staticmethod
    def helper(): return "helper"

class Child(Outer): pass

class Inherits(Handler): pass

class Overrides(Handler):
    def handle(self): return "own"

class Forged(library.Quiet):
    def handle(self): return "forged"
Forged.__module__ = "os"

class Pretends:
    def handle(self): return "pretends"
Pretends.__qualname__ = "send"

Claims = library.Handler
Local = (lambda: type("Local", (), {"handle": lambda self: None}))()
def make():
    class Made:
        def handle(self): return "made"
    return Made
Made = make()

class WithOdd(metaclass=library.Odd):
    def handle(self): return "odd"

class Proxy:
    __class__ = type
    __module__ = "shop.jobs"
    __qualname__ = "proxy"
    def __getattr__(self, name): raise AssertionError(f"{name} was read")
    def handle(self): return "proxy"
proxy = Proxy()

class NoMethod: pass
instance = Send()
bound = instance.handle
fixed = partial(os.system, "true")
"""

MAIL = """
class Send:
    def handle(self): return "sent"

class _Hidden:
    def handle(self): return "hidden"
"""


@pytest.fixture
def shop(modules):
    modules.update(
        {
            "library": LIBRARY,
            "shop": "def __getattr__(name):\n    raise AssertionError(f'{name} was read')",
            "shop.mail": MAIL,
            "shop.jobs": SHOP,
            "shop._private": MAIL,
            "shop.__main__": "raise AssertionError('the program was started')",
            "shop.leaves": "raise SystemExit(3)",
            "shop.swaps": "import os, sys\nsys.modules[__name__] = os",
            "shopping": MAIL,
        }
    )
    return modules


def registry() -> Registry:
    from shop.jobs import app

    assert isinstance(app, Tickwork)
    return app.registry


@pytest.mark.usefixtures("shop")
class TestAllowed:
    """Jobs of the application, and handler classes that lie below a prefix."""

    @pytest.mark.parametrize(
        "path",
        [
            "shop.mail:Send",
            "shop.jobs:Send",  # another module of the package defines it
            "shop.jobs:Outer",
            "shop.jobs:Outer.Inner",
            "shop.jobs:Child",
            "shop.jobs:Overrides",
            "shop.jobs:WithOdd",
            "shop.jobs:Local",  # its module created it
        ],
    )
    def test_a_handler_class_by_its_path(self, path):
        assert registry().get(path).handler.call is not None

    @pytest.mark.parametrize(
        ("path", "job"), [("shop.jobs:daily", "daily"), ("shop.jobs:Marked", "renamed")]
    )
    def test_a_job_by_its_path(self, path, job):
        found = registry()

        assert found.get(path) is found.get(job)

    def test_a_prefix_with_an_underscore_is_the_choice_of_the_program(self):
        handler_paths = ["shop._private"]

        assert Registry(handler_paths=handler_paths).get("shop._private:Send").name


@pytest.mark.usefixtures("shop")
class TestRefused:
    """Anything else, even if the module has it as an attribute."""

    @pytest.mark.parametrize(
        "path",
        [
            "shop.jobs:os.system",
            "shop.jobs:subprocess.getoutput",
            "shop.jobs:subprocess.Popen",
            "shop.jobs:importlib.import_module",
            "shop.jobs:app.prune",
            "shop.jobs:app",
            "shop.jobs:library.Handler",
            "shop.jobs:daily.dispatch",
            "shop.jobs:daily.definition",
            "shop.jobs:send",
            "shop.jobs:fetch",
            "shop.jobs:Outer.helper",
            "shop.jobs:Outer.handle",
            "shop.jobs:Outer.module.system",
            "shop.jobs:Outer.instance",
            "shop.jobs:Outer.instance.handle",
            "shop.jobs:Outer.foreign",
            "shop.jobs:instance",
            "shop.jobs:bound",
            "shop.jobs:fixed",
            "shop.jobs:proxy",
        ],
    )
    def test_modules_instances_and_functions(self, path):
        with pytest.raises(HandlerNotAllowed) as caught:
            registry().get(path)

        assert caught.value.path == path
        assert caught.value.why
        assert caught.value.fix

    @pytest.mark.parametrize(
        "path",
        [
            "shop.jobs:Handler",
            "shop.jobs:Alias",
            "shop.jobs:Claims",
            "shop.jobs:Inherits",  # the method is that of the library
            "shop.jobs:Forged",
            "shop.jobs:Pretends",
            "shop.jobs:Made",
            "shop.swaps:PathLike",
            "shop.swaps:system",
        ],
    )
    def test_what_was_defined_elsewhere(self, path):
        with pytest.raises(HandlerNotAllowed):
            registry().get(path)

    @pytest.mark.parametrize(
        "path",
        [
            "shop.mail:_Hidden",
            "shop.jobs:_Hidden",
            "shop.jobs:Shown",
            "shop.jobs:Outer._Inner",
            "shop.jobs:Outer.__class__",
            "shop.jobs:__loader__",
            "shop._private:Send",
            "shop.__main__:Send",
        ],
    )
    def test_names_with_an_underscore(self, path):
        with pytest.raises(HandlerNotAllowed, match="underscore"):
            registry().get(path)

        assert not {"shop._private", "shop.__main__"} & set(sys.modules)

    @pytest.mark.parametrize("path", ["shopping:Send", "library:Handler", "os:system", "sho:Send"])
    def test_nothing_beside_the_prefix_is_imported(self, path):
        found = registry()
        before = set(sys.modules)

        with pytest.raises(HandlerNotAllowed, match="allows: shop"):
            found.get(path)

        assert set(sys.modules) == before

    @pytest.mark.parametrize(
        "path",
        [
            "shop:Lazy",  # __getattr__ of the module is not called
            "shop.jobs:WithOdd.anything",  # nor that of a metaclass
            "shop.jobs:Child.Inner",  # it belongs to Outer
            "shop.jobs:nothing",
            "shop.jobs:NoMethod",
            "shop.nothing:Send",
            "shop.leaves:Send",  # a row does not end the worker
        ],
    )
    def test_what_is_not_there_is_not_found(self, path):
        with pytest.raises(HandlerNotFound):
            registry().get(path)


@pytest.mark.usefixtures("shop")
class TestCode:
    """Paths that the program passes itself are trusted."""

    @pytest.mark.parametrize(
        "path", ["shop.jobs:send", "shop.jobs:Handler", "shop.jobs:instance.handle"]
    )
    def test_a_declared_path_may_lead_anywhere(self, path):
        registry()
        app = Tickwork("memory://", handler_paths=[])
        run = app.schedule("declared", path).dispatch()
        app.run()

        assert run.result() in {"ann", "library", "sent"}
