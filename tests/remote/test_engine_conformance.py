"""Celery and Dask pass the conformance suite of engines, on real brokers and a real cluster."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from servers.dask_cluster import DaskCluster
from tickwork._engines.contract import Engine, EngineSetup
from tickwork._engines.remote import celery as celery_engine
from tickwork._engines.remote import dask as dask_engine
from tickwork._engines.remote import dask_results
from tickwork_conformance.engines import *  # noqa: F403  # as other programs import it
from tickwork_conformance.engines import TestedEngine

TESTS = Path(__file__).parents[1]

pytestmark = pytest.mark.timeout(180)


def build_with(build: Any, options: object, setup: EngineSetup) -> Engine:
    engine: Engine = build(setup._replace(options=options))
    return engine


def start_celery(folder: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    with (folder / "celery.log").open("ab") as log:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "celery", "-A", "remote.celery_conformance:celery"),
                *("worker", "-c", "1", "--without-mingle", "--without-gossip"),
            ],
            env={**os.environ, "PYTHONPATH": str(TESTS), **environment},
            cwd=folder,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def celery_on(broker: str, folder: Path) -> Iterator[TestedEngine]:
    url, queue = f"sqlite:///{folder}/jobs.db?synchronous=NORMAL", f"conformance-{os.getpid()}"
    environment = {
        "TICKWORK_CONFORMANCE_URL": url,
        "CONFORMANCE_BROKER": broker,
        "CONFORMANCE_QUEUE": queue,
    }
    process = start_celery(folder, environment)
    celery = Celery("conformance", broker=broker, set_as_current=False)
    options = celery_engine.CeleryOptions(celery, queue, runs_max=20)
    build = partial(build_with, celery_engine.build_engine, options)
    yield TestedEngine(build, can_end_attempts=False, database_url=url)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture(scope="module")
def on_rabbitmq(tmp_path_factory, rabbitmq_server) -> Iterator[TestedEngine]:
    yield from celery_on(rabbitmq_server.url(), tmp_path_factory.mktemp("rabbitmq"))


@pytest.fixture(scope="module")
def on_redis(tmp_path_factory, redis_server) -> Iterator[TestedEngine]:
    yield from celery_on(redis_server.url(), tmp_path_factory.mktemp("redis"))


@pytest.fixture(scope="module")
def on_dask(tmp_path_factory) -> Iterator[TestedEngine]:
    folder = tmp_path_factory.mktemp("dask")
    url = f"sqlite:///{folder}/jobs.db?synchronous=NORMAL"
    environment = {"TICKWORK_CONFORMANCE_URL": url, "PYTHONPATH": os.pathsep.join(sys.path)}
    with DaskCluster(folder, workers=1, threads=1, environment=environment) as cluster:
        build = partial(build_with, dask_engine.build_engine, cluster.address)
        yield TestedEngine(build, can_end_attempts=False, keeps_order=False, database_url=url)


@pytest.fixture(scope="module")
def on_dask_without_database(tmp_path_factory) -> Iterator[TestedEngine]:
    """Its workers know no database: results return with futures."""
    folder = tmp_path_factory.mktemp("dask-results")
    environment = {"PYTHONPATH": os.pathsep.join(sys.path)}
    with DaskCluster(folder, workers=1, threads=4, environment=environment) as cluster:
        build = partial(build_with, dask_results.build_engine, cluster.address)
        yield TestedEngine(build, can_end_attempts=False, has_flows=False)


@pytest.fixture(
    params=[
        pytest.param("on_rabbitmq", marks=pytest.mark.servers("rabbitmq")),
        pytest.param("on_redis", marks=[pytest.mark.servers("redis"), pytest.mark.long]),
        "on_dask",
        "on_dask_without_database",
    ]
)
def tested_engine(request: pytest.FixtureRequest) -> TestedEngine:
    tested: TestedEngine = request.getfixturevalue(request.param)
    return tested
