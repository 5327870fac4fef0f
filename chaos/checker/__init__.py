"""Decides, from what actors wrote down and what is in the tables, whether every promise was kept.

It knows the names of tables and columns, the workload as data, and nothing of the code that it
judges: it imports nothing from it. Rules are functions from evidence to violations.

evidence   reads journals and tables
lives      what the audit says about one run: when it was born, held, and by whom
rules      one promise each
story      everything that is known of one run, in order
"""

import json
from pathlib import Path

from chaos.checker.evidence import Evidence, read_journals, read_tables
from chaos.checker.verdict import Verdict, judged

TABLES = "tables.json"


def judge(folder: Path, url: str | None = None) -> Verdict:
    """Judge what a run of chaos left behind; without a URL, as its tables were then."""
    path = folder / TABLES
    if url is not None:
        path.write_text(json.dumps(read_tables(url)), encoding="utf-8")
    tables = json.loads(path.read_text(encoding="utf-8"))
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    return judged(Evidence.of(read_journals(folder), tables, manifest))
