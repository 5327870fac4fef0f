"""Handlers that are dispatched by their path."""

import os  # noqa: F401  # a row must not reach it

from tickwork import JobResult, RunContext, ScheduledJob  # noqa: F401  # nor the result

CALLS: list[tuple[str, object]] = []


def report(kind: str = "daily") -> str:
    CALLS.append(("report", kind))
    return kind


class Static:
    @staticmethod
    def handle(number: int) -> int:
        CALLS.append(("Static", number))
        return number


class OfClass:
    @classmethod
    def handle(cls, number: int) -> int:
        CALLS.append((cls.__name__, number))
        return number


class OnInstance:
    def __init__(self, name: str = "plain") -> None:
        self.name = name

    def handle(self, number: int, ctx: RunContext) -> str:
        CALLS.append((self.name, number))
        return f"{self.name} {number} {ctx.attempt}"


class Verdict(ScheduledJob):
    answer: bool | None = True

    def execute(self) -> bool | None:
        CALLS.append(("Verdict", self.answer))
        return self.answer


class NothingToCall:
    pass


instance = OnInstance()
