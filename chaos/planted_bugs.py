"""Bugs that the checker must find: each is a patch to a copy of the code.

A patch replaces text. It fails if the code no longer contains that text: otherwise the bug would
not be planted, and the test would prove nothing.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple


class Edit(NamedTuple):
    """Replaces ``old``, which the file contains exactly ``times`` times."""

    path: str  # below src/tickwork
    old: str
    new: str
    times: int = 1


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """A bug, the database on which it shows, and the rules of which at least one must find it."""

    name: str
    kind: str
    rules: frozenset[str]
    edits: tuple[Edit, ...]


class PatchOutdated(Exception):  # noqa: N818  # it states what happened
    """The code no longer contains the text that a patch replaces."""


def plant_bug(bug: PlantedBug, source: Path, folder: Path) -> Path:
    """Copy the code with the bug in it, and return the folder.

    Raises:
        PatchOutdated: The code has changed: update the patch.
    """
    copy = folder / "src"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for edit in bug.edits:
        path = copy / "tickwork" / edit.path
        text = path.read_text(encoding="utf-8")
        if text.count(edit.old) != edit.times:
            found = text.count(edit.old)
            raise PatchOutdated(f"{bug.name!r}: {edit.path} has this {found} times:\n{edit.old}")
        path.write_text(text.replace(edit.old, edit.new), encoding="utf-8")
    return copy


def _bug(name: str, kind: str, rules: set[str], *edits: Edit) -> PlantedBug:
    return PlantedBug(name, kind, frozenset(rules), edits)


BUGS: Final = (
    _bug(
        "a claim without a lock",
        "postgres",
        {"claims", "attempts"},
        Edit(
            "_stores/postgres/queries/runs.sql",
            "    WHERE ctid = wanted.place AND phase = 'ready'\n    FOR UPDATE SKIP LOCKED",
            "    WHERE ctid = wanted.place AND phase = 'ready'",
            times=2,
        ),
    ),
    _bug(
        "a claim without a lock, on MariaDB",
        "mariadb",
        {"claims", "attempts"},
        Edit(
            "_stores/mysql/queries/runs.sql",
            "WHERE phase = 'ready'\nLIMIT :limit\nFOR UPDATE SKIP LOCKED;",
            "WHERE phase = 'ready'\nLIMIT :limit;",
            times=2,
        ),
    ),
    _bug(
        "starts of a rate that are forgotten too early",
        "sqlite",
        {"rates"},
        Edit(
            "_stores/sqlite/queries/rates.sql",
            "DELETE FROM tickwork_start WHERE key = ? AND number <= ?;",
            "DELETE FROM tickwork_start WHERE key = ? AND number <= ? + 1000;",
        ),
    ),
    _bug(
        "a record without the token",
        "sqlite",
        {"stale", "claims", "records", "counters"},
        Edit(
            "_stores/sqlite/queries/records.sql",
            "WHERE run.id = step.column1 AND token = step.column2 AND status = 'running'",
            "WHERE run.id = step.column1 AND status = 'running'",
        ),
        Edit(
            "_stores/sqlite/queries/records.sql",
            "FROM tickwork_run\nWHERE id = ?1 AND token = ?2 AND status = 'running';\n"
            "DELETE FROM tickwork_run WHERE id = ?1 AND token = ?2 AND status = 'running';",
            "FROM tickwork_run\nWHERE id = ?1 AND status = 'running';\n"
            "DELETE FROM tickwork_run WHERE id = ?1 AND status = 'running';",
        ),
        Edit(
            "_stores/_sql/operations/record.py",
            "is_ours = token_by_id.get(transition.claim.run_id) == transition.claim.token",
            "is_ours = transition.claim.run_id in token_by_id",
        ),
    ),
    _bug(
        "a slot that is freed for every run",
        "sqlite",
        {"limits"},
        Edit(
            "_stores/sqlite/queries/runs.sql",
            "DELETE FROM tickwork_slot WHERE run = ? AND key = ?;",
            "DELETE FROM tickwork_slot WHERE run <> ?1 OR key = ?2;",
        ),
    ),
    _bug(
        "slots that are counted without the gate",
        "postgres",
        {"limits", "rates"},
        Edit(
            "_stores/postgres/queries/runs.sql",
            "WHERE gate = ANY (:gates::integer[])\nORDER BY gate\nFOR UPDATE SKIP LOCKED;",
            "WHERE gate = ANY (:gates::integer[])\nORDER BY gate;",
        ),
    ),
    _bug(
        "a finished run that unblocks no other",
        "sqlite",
        {"not final", "workers"},
        Edit(
            "_stores/_sql/operations/limits.py",
            "    return (yield from _unblock_up_to(query, rooms))",
            "    return 0",
        ),
    ),
    _bug(
        "a firing without compare-and-set",
        "postgres",
        {"firings"},
        Edit(
            "_stores/postgres/queries/schedules.sql",
            "    WHERE ctid = wanted.place AND next_due_at <= :now::bigint\n"
            "    FOR UPDATE SKIP LOCKED",
            "    WHERE ctid = wanted.place AND next_due_at <= :now::bigint",
            times=2,
        ),
        Edit(
            "_stores/postgres/queries/schedules.sql",
            "  AND schedule.id = ANY (:c1::uuid[])\n"
            "  AND (schedule.next_due_at = move.due_at) IS TRUE;",
            "  AND schedule.id = ANY (:c1::uuid[]);",
        ),
        Edit(
            "_domain/tick.py",
            "        firing_id(row.id, nominal_at),\n        now=now,",
            "        RunId(str(__import__('uuid').uuid4())),\n        now=now,",
        ),
    ),
    _bug(
        "a dispatch outside of the caller's transaction",
        "postgres",
        {"rolled back"},
        Edit(
            "_dispatch/dispatch.py",
            "        if options.connection is None:\n"
            "            return self.services.inserter.add(runs)",
            "        if runs:\n            return self.services.inserter.add(runs)",
        ),
    ),
    _bug(
        "a reaper that goes by age",
        "sqlite",
        {"leases"},
        Edit(
            "_stores/_sql/common_queries/records.sql",
            "WHERE lease_until BETWEEN :lowest::bigint AND :now::bigint\nORDER BY lease_until",
            "WHERE lease_until IS NOT NULL AND started_at <= :now::bigint - 1500000\n"
            "ORDER BY lease_until",
        ),
        Edit("_domain/runs/transitions.py", "    assert now >= claim.lease_until, claim\n", ""),
    ),
    _bug(
        "a heartbeat that revives a lost lease",
        "sqlite",
        {"claims", "stale"},
        Edit(
            "_stores/sqlite/queries/records.sql",
            "SET lease_until = max(lease_until, ?),\n    started_at = coalesce(started_at, ?)\n"
            "WHERE id = ? AND token = ? AND {is_claimed};",
            "SET lease_until = max(lease_until, ?1),\n    started_at = coalesce(started_at, ?2),\n"
            "    token = ?4\nWHERE id = ?3 AND {is_claimed};",
        ),
    ),
    _bug(
        "a checkpoint without the token",
        "sqlite",
        {"stale"},
        Edit(
            "_stores/sqlite/queries/records.sql",
            "checkpoint = coalesce(:checkpoint, checkpoint)\n"
            "WHERE id = :id AND token = :token AND status = 'running';",
            "checkpoint = coalesce(:checkpoint, checkpoint)\nWHERE id = :id AND :token > 0;",
        ),
    ),
    _bug(
        "a unique key that is read but not locked",
        "sqlite",
        {"unique"},
        Edit(
            "_stores/_sql/operations/inserts.py",
            '        held.update((yield query("key_holders", keys=unique_keys, now=now)))',
            '        yield query("key_holders", keys=unique_keys, now=now)',
        ),
        Edit(
            "_stores/sqlite/queries/runs.sql",
            "    THEN NOT EXISTS (SELECT 1 FROM tickwork_run WHERE tickwork_run.id ="
            " tickwork_unique.run)\n    ELSE tickwork_unique.until <= ?\nEND;",
            "    THEN 1 ELSE ? > 0\nEND;",
        ),
    ),
    _bug(
        "a tick that forgets late instants",
        "sqlite",
        {"firings"},
        Edit(
            "_domain/firings.py",
            "        upcoming = first_due(rule, after=upcoming, until=until)\n        room -= 1",
            "        upcoming = first_due(rule, after=max(upcoming, now), until=until)\n"
            "        room -= 1",
        ),
    ),
    _bug(
        "a claim that takes the highest priority number first",
        "sqlite",
        {"priorities"},
        Edit(
            "_stores/sqlite/queries/runs.sql",
            "    WHERE phase = 'ready'\n    ORDER BY priority, due_at, id\n    LIMIT :head_size",
            "    WHERE phase = 'ready'\n    ORDER BY priority DESC, due_at, id\n"
            "    LIMIT :head_size",
        ),
    ),
    _bug(
        "a dispatch that is repeated under a new id",
        "postgres",
        {"added twice", "rolled back"},
        Edit(
            "_dispatch/dispatch.py",
            "    return [\n        answer._replace(is_new=answer.run_id == run.id)",
            "    import uuid\n\n"
            "    runs = [run._replace(id=str(uuid.uuid4())) for run in runs]\n"
            "    return [\n        answer._replace(is_new=answer.run_id == run.id)",
        ),
    ),
    _bug(
        "a completion outside of the handler's transaction",
        "postgres",
        {"effects"},
        Edit(
            "_worker/attempts/attempt_store.py",
            "        is_done = borrowed.complete(claim, now=self._clock.now(), result=result)",
            "        is_done = self._store.complete(claim, now=self._clock.now(), result=result)",
        ),
    ),
    _bug(
        "a crash that costs an attempt",
        "sqlite",
        {"counters", "records"},
        Edit(
            "_domain/runs/transitions.py",
            "    transition = transition._replace(crash=int(crashed.has_started))",
            "    transition = transition._replace("
            "crash=int(crashed.has_started), uncounted_attempts=0)",
        ),
    ),
    _bug(
        "a worker that treats the others as dead",
        "sqlite",
        {"leases"},
        Edit(
            "_worker/services/reaper.py",
            "return self._is_here(worker) and has_ended(worker.pid, worker.process_started)",
            "return self._is_here(worker) and worker.pid != self._me.pid",
        ),
    ),
    _bug(
        "a clock that is set forward and ends leases",
        "sqlite",
        {"leases", "attempts"},
        Edit(
            "_worker/services/reaper.py",
            "            if self._is_held(expired.claim) or self._keeps_lease(expired):\n"
            "                return None\n",
            "",
        ),
        Edit("_worker/build.py", "        reaper.postpone(more=store.clock_seconds)\n", ""),
    ),
    _bug(
        "a schedule that overlaps itself",
        "sqlite",
        {"overlap"},
        Edit(
            "_domain/tick.py",
            "            return held_key(row.id)",
            "            return None",
        ),
    ),
    _bug(
        "a cancellation that leaves no record",
        "sqlite",
        {"lost"},
        Edit(
            "_stores/sqlite/queries/records.sql",
            "       :now, 'canceled', NULL, :reason\n"
            "FROM tickwork_run\n"
            "WHERE id IN (SELECT value FROM json_each(:ids)) AND status <> 'running';",
            "       :now, 'canceled', NULL, :reason\n"
            "FROM tickwork_run\n"
            "WHERE id IN (SELECT value FROM json_each(:ids)) AND status = 'gone';",
        ),
    ),
    _bug(
        "a worker that goes on without its event loop",
        "sqlite",
        {"workers"},
        Edit(
            "_worker/services/engine_services.py",
            "        if dead >= FAILING_SECONDS:",
            "        if False:",
        ),
        Edit(
            "_engines/local/asyncio_.py",
            "            self._host.give_back(claim, Crashed(reason))\n"
            "        self._claim_by_task.clear()\n",
            "            pass\n",
        ),
    ),
    _bug(
        "a success that fails when the database cannot store it",
        "postgres",
        {"outcomes", "records"},
        Edit(
            "_worker/attempts/writer.py",
            "        except StoreError as error:\n            if self._keep(batch, error):\n",
            "        except StoreError as error:\n"
            "            if isinstance(error, StatementFailed):\n"
            "                from tickwork._domain.runs.status import RunStatus\n"
            "                failed = RunStatus.FAILED_PERMANENT, OutcomeKind.FAILED\n"
            "                to_status, outcome = failed\n"
            "                steps = [\n"
            "                    step._replace(to_status=to_status, outcome=outcome, due_at=None)\n"
            "                    for step in steps\n"
            "                ]\n"
            "                batch = batch._replace(steps=steps)\n"
            "            if self._keep(batch, error):\n",
        ),
    ),
)
