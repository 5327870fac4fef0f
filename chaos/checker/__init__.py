"""Checks journals and tables for broken guarantees.

It knows the names of tables and columns and the workload as data. It imports nothing of the code
that it checks. Rules are functions from evidence to violations.

evidence     reads journals and tables
clock_steps  leases in real time, where the clock was set
holds        the claims of each run, from the audit
rules        one function for each guarantee
timeline     all that is known of one run, in order
"""

import json
from pathlib import Path

from chaos.checker.evidence import Evidence, read_journals, read_tables
from chaos.checker.verdict import Verdict, judge_evidence

TABLES = "tables.json"


def judge(folder: Path, url: str | None = None) -> Verdict:
    """Check what a run left behind; without a URL, with the tables that were saved then."""
    path = folder / TABLES
    if url is not None:
        path.write_text(json.dumps(read_tables(url)), encoding="utf-8")
    tables = json.loads(path.read_text(encoding="utf-8"))
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    return judge_evidence(Evidence.of(read_journals(folder), tables, manifest))
