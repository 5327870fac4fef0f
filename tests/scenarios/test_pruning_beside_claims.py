"""Another process prunes many runs while this one claims."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from contract.builders import NOON
from contract.growth import Operations, Sizes, fill
from tickwork import RunStatus
from tickwork._stores import open_store
from tickwork._stores.contract import RunFilter

FINISHED = 20_000
SECONDS_MAX = 2.0
"""Twenty batches of a thousand take seconds: a claim that waited for them would be noticed."""

PRUNE = "import sys; from tickwork import Tickwork; print(Tickwork(sys.argv[1]).prune(days=1).runs)"
KINDS = [
    "sqlite",
    *(pytest.param(kind, marks=[pytest.mark.servers(kind)]) for kind in ("postgres", "mariadb")),
]


@pytest.mark.parametrize("kind", KINDS)
def test_pruning_blocks_no_claim(kind, request, tmp_path):
    url = f"sqlite:///{tmp_path}/jobs.db?synchronous=NORMAL"
    if kind != "sqlite":
        url = request.getfixturevalue(f"{kind}_url")
    store = open_store(url)
    store.install()
    fill(kind, url, Sizes(FINISHED, 500, 500, 80, 500), now=NOON)
    operations = Operations(store, NOON)
    waits = []
    command = [sys.executable, "-c", PRUNE, url]
    path = os.pathsep.join(
        [str(Path(__file__).parents[2] / "src"), os.environ.get("PYTHONPATH", "")]
    )
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    ) as pruning:
        while pruning.poll() is None:
            act = operations.claim()
            begun = time.monotonic()
            act()
            waits.append(time.monotonic() - begun)
            operations.finish_all()
        output = pruning.communicate(timeout=60)[0]

    assert pruning.returncode == 0
    # The runs of these claims are old enough to be pruned, too: the clock is fixed.
    assert FINISHED <= int(output) <= FINISHED + 50 * len(waits)
    where = RunFilter(job="old7", statuses=frozenset({RunStatus.COMPLETED}))
    assert store.list_runs(where).runs == []
    assert len(waits) > 1
    assert max(waits) < SECONDS_MAX, sorted(waits)[-5:]
    store.close()
