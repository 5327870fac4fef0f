"""A remote system in this process: its messages wait in a list until a test delivers them."""

from collections.abc import Sequence
from typing import Any

from tickwork._domain.runs.handover import Handover, encode_message
from tickwork.errors import EngineUnavailable


class ListTransport:
    name = "list"
    runs_max = 20

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.removed: list[str] = []
        self.is_unavailable = False
        self.is_lossy = False
        self.submitted = 0
        self.refused = 0
        self.sizes: list[int] = []

    def submit(self, messages: Sequence[Sequence[Handover]]) -> None:
        if self.is_unavailable:
            self.refused += 1
            raise EngineUnavailable(self.name, "list://", reason="It is switched off.")
        self.submitted += len(messages)
        self.sizes.append(len(messages))
        if not self.is_lossy:
            self.messages += map(encode_message, messages)

    def run_ids(self) -> set[str]:
        return {run_id for message in self.messages for run_id, _ in message["runs"]}

    def cancel(self, handover: Handover) -> None:
        self.removed.append(handover.external_id)

    def close(self) -> None:
        pass
