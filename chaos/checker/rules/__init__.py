"""The rules: one function for each guarantee, from evidence to violations."""

from collections.abc import Callable, Iterator
from typing import Final

from chaos.checker.evidence import Evidence
from chaos.checker.rules import (
    actors,
    dispatches,
    firings,
    leases,
    limits,
    pauses,
    priorities,
    records,
)
from chaos.checker.violation import Violation

__all__ = ["RULES", "Rule", "Violation"]

Rule = Callable[[Evidence], Iterator[Violation]]

RULES: Final[tuple[Rule, ...]] = (
    dispatches.no_run_is_lost,
    dispatches.nothing_rolled_back_is_seen,
    dispatches.nothing_is_added_twice,
    dispatches.every_run_is_final,
    leases.claims_follow_each_other,
    leases.leases_are_taken_only_after_they_expired,
    leases.attempts_do_not_overlap,
    leases.no_stale_write_lands,
    leases.effects_happen_once,
    limits.limits_hold_in_the_tables,
    limits.limits_hold_by_the_clock,
    limits.rates_are_kept,
    limits.keys_are_unique,
    limits.windows_are_kept,
    limits.schedules_do_not_overlap,
    priorities.better_priorities_start_first,
    pauses.paused_runs_do_not_start,
    firings.each_instant_is_accounted_for_once,
    records.outcomes_match_the_handlers,
    records.what_returned_is_not_failed,
    records.counters_agree,
    records.job_rows_have_the_last_success,
    actors.workers_end_only_on_request,
)
