"""One promise each: a function from evidence to violations."""

from collections.abc import Callable, Iterator
from typing import Final

from chaos.checker.evidence import Evidence
from chaos.checker.rules import actors, books, dispatches, firings, leases, limits, priorities
from chaos.checker.violation import Violation

__all__ = ["RULES", "Rule", "Violation"]

Rule = Callable[[Evidence], Iterator[Violation]]

RULES: Final[tuple[Rule, ...]] = (
    dispatches.no_run_is_lost,
    dispatches.nothing_rolled_back_is_seen,
    dispatches.nothing_is_added_twice,
    dispatches.every_run_is_final,
    leases.claims_follow_each_other,
    leases.leases_are_taken_only_when_over,
    leases.attempts_do_not_overlap,
    leases.no_stale_write_lands,
    leases.effects_happen_once,
    limits.limits_hold_in_the_tables,
    limits.limits_hold_by_the_clock,
    limits.rates_are_kept,
    limits.keys_are_unique,
    limits.windows_are_kept,
    limits.schedules_do_not_overlap,
    priorities.better_ones_go_first,
    firings.each_instant_is_accounted_for_once,
    books.records_say_what_happened,
    books.counters_agree,
    books.jobs_remember,
    actors.workers_live_on,
)
