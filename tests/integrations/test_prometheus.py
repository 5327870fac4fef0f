"""Prometheus: what a scrape of the process reads."""

import subprocess

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from servers.promtool import find_programs as find_promtool
from tickwork import RunContext, Snooze, Tickwork
from tickwork._domain.health import WorkerState
from tickwork._domain.identity import RunId
from tickwork._domain.runs.run import Claim
from tickwork.integrations.prometheus import instrument
from tickwork.testing import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def app(tmp_path, clock):
    with Tickwork(f"sqlite:///{tmp_path}/jobs.db", install=True, clock=clock) as app:
        yield app


@pytest.fixture
def scrape(app):
    """Scrapes as Prometheus does, and returns every sample by its name and labels."""
    registry = CollectorRegistry()
    instrument(app, registry=registry)

    def read():
        text = generate_latest(registry).decode()
        return {
            (sample.name, *sorted(sample.labels.values())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    return read


def test_it_returns_the_metrics_of_the_registry(app, clock):
    registry = CollectorRegistry()

    metrics = instrument(app, registry=registry)

    assert instrument(app, registry=registry) is metrics
    assert instrument(app, registry=CollectorRegistry()) is not metrics
    app.job(lambda: None, name="send").dispatch()
    assert metrics.dispatched.labels("send", "default")._value.get() == 1


def test_outcomes_durations_and_lateness(app, clock, scrape):
    @app.job(queue="mail")
    def send(ctx: RunContext) -> None:
        clock.advance(seconds=3)

    @app.job(queue="mail", attempts=2, delays=["1s"])
    def fail() -> None:
        raise ValueError("no paper")

    @app.job
    def snooze() -> None:
        raise Snooze("1h")

    send.dispatch()
    clock.advance(seconds=20)
    app.run()
    fail.dispatch()
    app.run()
    clock.advance(seconds=2)
    app.run()

    @app.job
    def sleep(ctx: RunContext) -> None:
        ctx.sleep("1h")

    snooze.dispatch()
    sleep.dispatch()
    app.run()
    found = scrape()

    assert found["tickwork_runs_dispatched_total", "mail", "send"] == 1
    assert found["tickwork_attempts_total", "mail", "send", "succeeded"] == 1
    assert found["tickwork_attempts_total", "fail", "mail", "retried"] == 1
    assert found["tickwork_attempts_total", "fail", "failed", "mail"] == 1
    assert found["tickwork_attempts_total", "default", "postponed", "snooze"] == 1
    assert found["tickwork_attempts_total", "default", "sleep", "suspended"] == 1
    assert found["tickwork_attempt_duration_seconds_sum", "mail", "send"] == 3
    assert found["tickwork_start_lateness_seconds_sum", "mail", "send"] == 20
    assert found["tickwork_attempt_duration_seconds_count", "fail", "mail"] == 2


def test_claims_come_in_batches(app, scrape):
    @app.job
    def work() -> None: ...

    work.dispatch_many([{}] * 7)
    app.run()
    found = scrape()

    assert found["tickwork_claim_batch_size_count",] == 1
    assert found["tickwork_claim_batch_size_sum",] == 7


def test_firings_that_are_late_and_missed(app, clock, scrape):
    app.schedule("hourly", lambda: None).hourly().misfire("skip", grace="60s")
    app.run()
    clock.advance(hours=1, seconds=5)
    app.run()
    clock.advance(hours=3)
    app.run()
    found = scrape()

    assert found["tickwork_schedule_lateness_seconds_sum", "hourly"] == 10  # two, 5 s each
    assert found["tickwork_firings_missed_total", "hourly"] == 2


def test_a_lost_lease(app, clock, scrape):
    claim = Claim(RunId("0"), "work", "", "mail", "{}", 1, 1, 0, 1, clock.now(), clock.now())
    app._services.worker_context.reporter.report_lost(claim, at=clock.now())

    assert scrape()["tickwork_leases_lost_total", "mail", "work"] == 1


def test_queues_come_from_the_database(app, clock, scrape):
    @app.job(queue="mail")
    def send() -> None: ...

    @app.job
    def other() -> None: ...

    send.dispatch()
    clock.advance(seconds=90)
    send.dispatch()
    send.delay("1h").dispatch()
    other.dispatch()
    app.pause(queue="slow")
    found = scrape()

    assert found["tickwork_queue_runs", "mail", "ready"] == 2
    assert found["tickwork_queue_runs", "mail", "waiting"] == 1
    assert found["tickwork_queue_oldest_seconds", "mail"] == 90
    assert found["tickwork_queue_oldest_seconds", "default"] == 0
    assert found["tickwork_queue_paused", "slow"] == 1
    assert ("tickwork_queue_oldest_seconds", "slow") not in found
    assert found["tickwork_workers", "live"] == 0
    assert found["tickwork_database_up",] == 1


def test_what_other_workers_finished_is_counted_in_the_database(app, clock, scrape):
    @app.job(queue="mail")
    def send() -> None: ...

    clock.advance(seconds=30)
    send.dispatch()
    send.dispatch()
    clock.advance(seconds=10)
    app.run()
    clock.advance(seconds=20)
    found = scrape()

    assert found["tickwork_queue_ended_last_hour", "completed", "mail"] == 2
    assert found["tickwork_queue_ended_last_hour", "failed", "mail"] == 0
    assert found["tickwork_queue_finished_per_minute", "mail"] > 0
    assert 8 < found["tickwork_queue_wait_seconds", "95", "mail"] < 17
    clock.advance(hours=2)
    assert scrape()["tickwork_queue_ended_last_hour", "completed", "mail"] == 0


def test_a_scrape_while_the_database_is_away():
    registry = CollectorRegistry()
    with Tickwork("postgresql://ann@127.0.0.1:1/none") as app:
        instrument(app, registry=registry)
        text = generate_latest(registry).decode()

    assert "tickwork_database_up 0.0" in text
    assert "tickwork_queue_runs" not in text


def test_a_worker_that_cannot_work(app, scrape, monkeypatch):
    assert scrape()["tickwork_worker_stuck",] == 0

    monkeypatch.setattr(Tickwork, "worker_state", WorkerState.STUCK)

    assert scrape()["tickwork_worker_stuck",] == 1


def test_a_second_call_returns_the_same_metrics(app):
    registry = CollectorRegistry()

    assert instrument(app, registry=registry) is instrument(app, registry=registry)


def test_no_label_is_one_that_the_server_renames(app):
    registry = CollectorRegistry()
    instrument(app, registry=registry)
    work = app.schedule("work", lambda: None).hourly()
    work.dispatch()
    app.run()
    text = generate_latest(registry).decode()
    labels = {
        label
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        for label in sample.labels
    }

    assert labels == {
        *("job_name", "queue", "outcome", "phase", "state", "le", "status", "percentile"),
    }
    assert not labels & {"job", "instance"}


def test_ad_hoc_jobs_share_one_label_value(app, scrape):
    for number in range(3):
        app.adhoc(f"process-{number}", lambda: None).dispatch()
    app.run()
    found = scrape()

    assert found["tickwork_runs_dispatched_total", "(ad hoc)", "default"] == 3
    assert found["tickwork_attempts_total", "(ad hoc)", "default", "succeeded"] == 3
    assert not [sample for sample in found if "process-1" in sample]


def test_counters_and_gauges_exist_before_the_first_event(app, scrape):
    @app.job(queue="mail")
    def send() -> None: ...

    found = scrape()

    assert found["tickwork_runs_dispatched_total", "mail", "send"] == 0
    for outcome in (
        "succeeded",
        "retried",
        "failed",
        "skipped",
        "postponed",
        "suspended",
        "canceled",
    ):
        assert found["tickwork_attempts_total", *sorted(["mail", outcome, "send"])] == 0
    assert found["tickwork_leases_lost_total", "mail", "send"] == 0
    assert found["tickwork_firings_missed_total", "send"] == 0
    assert found["tickwork_queue_runs", "mail", "ready"] == 0
    assert found["tickwork_queue_oldest_seconds", "mail"] == 0
    assert found["tickwork_queue_paused", "mail"] == 0


def test_the_gauge_of_a_queue_falls_to_zero(app, scrape):
    work = app.schedule("work", lambda: None)
    work.queue("other").dispatch()
    assert scrape()["tickwork_queue_runs", "other", "ready"] == 1

    app.run()

    assert scrape()["tickwork_queue_runs", "other", "ready"] == 0


def test_a_scrape_does_not_fail_while_a_definition_is_wrong(app, scrape):
    app.schedule("broken", "no.such.module:function")

    assert scrape()["tickwork_database_up",] == 1


@pytest.mark.servers("promtool")
def test_promtool_has_no_complaints(app):
    registry = CollectorRegistry()
    instrument(app, registry=registry)
    app.schedule("work", lambda: None).hourly().dispatch()
    app.run()

    done = subprocess.run(
        [find_promtool(), "check", "metrics"],
        input=generate_latest(registry),
        capture_output=True,
        check=False,
        timeout=60,
    )

    assert (done.returncode, done.stdout.decode(), done.stderr.decode()) == (0, "", "")
