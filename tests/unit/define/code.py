"""Code that definitions in these tests name by its path."""

from typing import Any

from tickwork import RunContext


def report(kind: str = "daily") -> str:
    return kind


async def fetch(url: str) -> str:
    return url


class Outer:
    class Inner:
        @staticmethod
        def handle(number: int) -> int:
            return number


class StaticHandle:
    @staticmethod
    def handle(number: int) -> int:
        return number


class ClassHandle:
    @classmethod
    async def handle(cls, number: int) -> str:
        return f"{cls.__name__} {number}"


class InstanceHandle:
    def __init__(self, name: str = "plain") -> None:
        self.name = name

    def handle(self, number: int, ctx: RunContext) -> str:
        return f"{self.name} {number} {ctx.attempt}"


class Execute:
    def execute(self) -> bool:
        return False


class AsyncExecute:
    async def execute(self) -> bool:
        return True


class Both:
    def handle(self, number: int) -> str:
        return f"handle {number}"

    def execute(self) -> bool:
        return False


class Neither:
    handle = None
    execute = "not callable"


class ForType:
    """A handler that is registered for job types."""

    def __init__(self, *types: str) -> None:
        self.types = types

    def supports(self, job_type: str) -> bool:
        return job_type in self.types

    def handle(self, run: RunContext) -> Any:
        return run.job


NUMBER = 5
SETTINGS = {"password": "S3CRET"}
