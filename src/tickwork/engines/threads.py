"""The thread engine: for plain functions."""

import time

from tickwork._domain.run import Claim
from tickwork.engines.contract import EngineSetup
from tickwork.engines.thread_caller import ThreadCaller
from tickwork.engines.thread_pool import ThreadPoolEngine


class ThreadEngine(ThreadPoolEngine):
    def __init__(self, setup: EngineSetup) -> None:
        super().__init__(setup)
        self._call = ThreadCaller(clock=setup.clock, construct=setup.construct)

    def _attempt(self, claim: Claim) -> None:
        host = self._host
        try:
            attempt = host.begin(claim)
            if attempt is None:
                return
            outcome = self._call(attempt.definition, attempt.ctx, attempt.ends_at)
            host.end(attempt, outcome)
        except BaseException as error:  # noqa: BLE001  # each claim must get an outcome
            host.fail(claim, error)
        else:
            self.durations.add(claim.job, time.perf_counter() - attempt.begun_at)
