"""What a worker logs, what records carry, and that the logging of the host is left alone."""

import copy
import logging
import os
import pickle
import subprocess
import sys
from typing import Any

import pytest

from tickwork import RunStatus, Tickwork
from tickwork._domain.identity import RunId
from tickwork._domain.runs.run import NewRun
from tickwork._kernel.ids import new_id
from tickwork.events import AttemptFailed, RunFailed
from tickwork.testing import ManualClock


@pytest.fixture
def memory_app():
    with Tickwork("memory://", clock=ManualClock()) as app:
        yield app


class Collector(logging.Handler):
    """A handler of the host, on one logger."""

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__()
        self.logger = logger
        self.records: list[logging.LogRecord] = []
        logger.addHandler(self)

    def emit(self, record):
        self.records.append(record)


@pytest.fixture
def seen():
    """Every record, as a handler on the root logger sees it."""
    collector = Collector(logging.getLogger())
    yield collector.records
    logging.getLogger().removeHandler(collector)


def make_record(message, *args, exc_info=None):
    """A record that no handler formats."""
    log = logging.getLogger("shop")
    return log.makeRecord("shop", logging.WARNING, "shop.py", 1, message, args, exc_info)


def fail():
    raise ValueError("no paper")


def in_a_process(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


class TestFailures:
    def test_the_first_program_of_the_readme_shows_a_traceback(self, tmp_path):
        done = in_a_process(f"""
from tickwork import Tickwork

app = Tickwork("sqlite:///{tmp_path}/jobs.db")
app.schedule("hello", lambda: 1 / 0).every_second()
app.on(__import__("tickwork.events").events.RunFailed)(lambda event: app.stop())
app.forever()
""")

        assert done.returncode == 0, done.stderr
        assert "Traceback (most recent call last):" in done.stderr
        assert "ZeroDivisionError: division by zero" in done.stderr
        assert "hello: run " in done.stderr

    def test_an_attempt_with_a_retry_is_a_warning_and_the_last_one_an_error(self, memory_app, seen):
        run = memory_app.schedule("print", fail).retries(max=2, delay=0).dispatch()
        memory_app.run()
        memory_app.run()

        first, last = (each for each in seen if each.name.startswith("tickwork.worker"))
        assert last.name == "tickwork.worker.failures"
        assert (first.levelname, last.levelname) == ("WARNING", "ERROR")
        assert "attempt 1 of run" in first.getMessage()
        assert "ValueError: no paper" in first.getMessage()
        assert first.exc_info is None
        assert last.exc_info is not None
        assert isinstance(last.exc_info[1], ValueError)
        for number, record in enumerate((first, last), start=1):
            fields = vars(record)
            assert (fields["run_id"], fields["job"], fields["attempt"]) == (run.id, "print", number)

    def test_the_events_of_a_failure_carry_the_exception(self, memory_app):
        events: list[Any] = []
        memory_app.on(AttemptFailed)(events.append)
        memory_app.on(RunFailed)(events.append)
        memory_app.schedule("print", fail).dispatch()
        memory_app.run()

        assert [type(event.exception) for event in events] == [ValueError, ValueError]

    @pytest.mark.parametrize("options", [{}, {"on_error": [lambda: None]}, {"timeout": 60}])
    def test_each_kind_of_attempt_keeps_its_exception(self, memory_app, seen, options):
        async def fail_too():
            fail()

        for function in (fail, fail_too):
            memory_app.job(**options)(function).dispatch()
        memory_app.run()

        errors = [each.exc_info for each in seen if each.levelname == "ERROR"]
        assert [kind for kind, _, _ in errors] == [ValueError, ValueError]

    def test_a_host_that_owns_the_names_of_the_fields_is_not_disturbed(self, memory_app, seen):
        previous = logging.getLogRecordFactory()

        def number_records(*args, **kwargs):
            record = previous(*args, **kwargs)
            record.job = "the host's"
            return record

        logging.setLogRecordFactory(number_records)
        try:
            run = memory_app.schedule("print", fail).dispatch()
            memory_app.run()
        finally:
            logging.setLogRecordFactory(previous)

        assert run.status is RunStatus.FAILED_PERMANENT
        assert any("no paper" in each.getMessage() for each in seen)


class TestFields:
    def test_a_program_may_use_the_names_of_the_fields_itself(self, memory_app, seen):
        def talk():
            logging.getLogger("shop").warning("low", extra={"job": "mine", "attempt": "third"})

        run = memory_app.schedule("print", talk).dispatch()
        memory_app.run()

        assert run.status is RunStatus.COMPLETED
        [record] = [each for each in seen if each.name == "shop"]
        fields = vars(record)
        assert (fields["run_id"], fields["job"], fields["attempt"]) == (run.id, "mine", "third")

    def test_every_handler_gets_them(self, memory_app):
        """Also one on a logger that does not propagate, and a formatter of the host."""
        lines = []

        class Formatted(logging.Handler):
            def emit(self, record):
                lines.append(self.format(record))

        shop = logging.getLogger("shop.private")
        shop.propagate = False
        handler = Formatted()
        handler.setFormatter(logging.Formatter("%(job)s %(attempt)d: %(message)s"))
        shop.addHandler(handler)
        run = memory_app.schedule("print", lambda: shop.warning("low on %s", "ink")).dispatch()
        memory_app.run()

        assert lines == ["print 1: low on ink"]
        assert [line.message for line in run.log()] == ["low on ink"]

    def test_a_record_can_be_copied_and_pickled(self, memory_app, seen):
        """A handler with a queue copies records, one with a socket pickles them."""
        memory_app.schedule("print", lambda: logging.getLogger("shop").warning("low")).dispatch()
        memory_app.run()
        [record] = [each for each in seen if each.name == "shop"]

        assert vars(copy.copy(record)) == vars(record)
        again = pickle.loads(pickle.dumps(record))  # ours
        assert type(vars(again)) is dict
        assert vars(again) == vars(record)

    def test_records_that_another_process_made_are_not_kept(self, memory_app):
        def receive():
            record = logging.makeLogRecord(
                {"name": "other", "msg": "from elsewhere", "levelno": 30}
            )
            logging.getLogger("other").handle(record)

        run = memory_app.schedule("print", receive).dispatch()
        memory_app.run()

        assert run.status is RunStatus.COMPLETED
        assert run.log() == []

    def test_formatting_a_record_for_the_run_does_not_change_it(self, memory_app):
        made = []

        def talk():
            try:
                fail()
            except ValueError:
                made.append(make_record("low on %s", "paper", exc_info=sys.exc_info()))

        run = memory_app.schedule("print", talk).dispatch()
        memory_app.run()

        [record] = made
        assert (record.args, record.exc_text) == (("paper",), None)
        [line] = run.log()
        assert line.message.startswith("low on paper\nTraceback")

    def test_a_message_that_cannot_be_formatted_does_not_fail_the_run(self, memory_app):
        class Unprintable:
            def __str__(self):
                make_record("inside")
                raise RuntimeError

        def talk():
            make_record("it is %s", Unprintable())

        run = memory_app.schedule("print", talk).dispatch()
        memory_app.run()

        assert run.status is RunStatus.COMPLETED
        assert [line.message for line in run.log()] == ["it is %s"]

    def test_two_applications_keep_their_own_lines(self, memory_app):
        with Tickwork("memory://") as other:
            theirs = other.schedule("it", lambda: logging.getLogger("shop").warning("b")).dispatch()

            def nested():
                logging.getLogger("shop").warning("a")
                other.run()

            ours = memory_app.schedule("print", nested).dispatch()
            memory_app.run()

            assert [line.message for line in ours.log()] == ["a"]
            assert [line.message for line in theirs.log()] == ["b"]


class TestHost:
    """The root logger and the record factory belong to the host."""

    def test_nothing_stays_behind(self, memory_app):
        root, factory = logging.getLogger(), logging.getLogRecordFactory()
        before = root.level, list(root.handlers)
        during = []

        def look():
            during.append((root.level, list(root.handlers)))

        memory_app.schedule("print", look).dispatch()
        memory_app.run()

        assert during == [before]
        assert (root.level, list(root.handlers)) == before
        assert logging.getLogRecordFactory() is factory

    def test_a_factory_that_the_host_sets_meanwhile_stays(self, memory_app, seen):
        original = logging.getLogRecordFactory()

        def configure():
            previous = logging.getLogRecordFactory()

            def number_records(*args, **kwargs):
                record = previous(*args, **kwargs)
                record.number = 7
                return record

            logging.setLogRecordFactory(number_records)
            logging.getLogger("shop").warning("configured")

        job = memory_app.schedule("print", configure)
        try:
            first = job.dispatch()
            memory_app.run()
            mine = logging.getLogRecordFactory()
            second = memory_app.schedule(
                "other", lambda: logging.getLogger("shop").warning("again")
            ).dispatch()
            memory_app.run()

            assert logging.getLogRecordFactory() is mine
            assert [line.message for line in first.log()] == ["configured"]
            assert [line.message for line in second.log()] == ["again"]
            shop = [each for each in seen if each.name == "shop"]
            assert [vars(each)["number"] for each in shop] == [7, 7]
        finally:
            logging.setLogRecordFactory(original)

    def test_a_later_configuration_of_the_host_works(self, tmp_path):
        done = in_a_process(f"""
import logging
import os
from tickwork import Tickwork

app = Tickwork("sqlite:///{tmp_path}/jobs.db")
run = app.schedule("talk", lambda: logging.getLogger("shop").info("here")).dispatch()
with app.running():
    logging.basicConfig(level=logging.INFO, format="%(levelname)s <%(message)s>")
    logging.getLogger("shop").info("configured")
    run.wait(30)
root = logging.getLogger()
assert root.level == logging.INFO, root.level
assert len(root.handlers) == 1, root.handlers
print([line.message for line in run.log()])
""")

        assert done.returncode == 0, done.stderr
        assert "INFO <configured>" in done.stderr
        assert "INFO <here>" in done.stderr or done.stdout.strip() == "[]"

    def test_a_worker_logs_its_start_and_its_stop(self, memory_app, caplog):
        caplog.set_level(logging.INFO, "tickwork")
        with Tickwork("memory://") as app:
            done = app.schedule("print", lambda: None).dispatch()
            with app.running():
                done.wait(30)

        ours = [each.getMessage() for each in caplog.records if each.name == "tickwork.worker"]
        assert ours[0].startswith(
            f"The worker {os.getpid()} started on memory://: 1 job, 0 schedules, all queues"
        )
        assert ours[-1].startswith(f"The worker {os.getpid()} stopped after ")
        [ran] = [each for each in caplog.records if each.name == "tickwork.worker.runs"]
        assert ran.levelname == "INFO"
        assert f"run {done.id} completed" in ran.getMessage()
        assert vars(ran)["run_id"] == done.id


class TestForgery:
    """A text from outside cannot forge a record of tickwork."""

    def test_the_message_of_an_error_stays_on_one_line(self, memory_app, seen):
        def forge():
            raise ValueError("no\n2026-01-01 ERROR tickwork.worker: forged\x1b[2J\u202e")

        run = memory_app.schedule("print", forge).dispatch()
        memory_app.run()

        [record] = [each for each in seen if each.name == "tickwork.worker.failures"]
        assert record.getMessage() == (
            rf"print: run {run.id} failed at attempt 1: ValueError: no\n"
            r"2026-01-01 ERROR tickwork.worker: forged\x1b[2J\u202e"
        )
        assert record.exc_text is not None
        assert "\x1b" not in record.exc_text
        assert r"forged\x1b[2J\u202e" in record.exc_text


class TestRefusedHandlers:
    """A row can name a handler that this process must not, or cannot, call."""

    def test_each_is_logged_once(self, memory_app, seen):
        for name in ("os:system", "os:system", "application.missing:Thing", "unknown"):
            now = memory_app.clock.now()
            row = NewRun(RunId(new_id(now)), name, created_at=now, due_at=now)
            memory_app._services.store.add_runs([row])
        for _ in range(2):
            memory_app.run()
            memory_app.schedule("new", fail)  # then names that were refused are looked up again

        refused = [each.getMessage() for each in seen if "a row names" in each.getMessage()]
        assert sorted(text.split("'")[1] for text in refused) == [
            "application.missing:Thing",
            "os:system",
        ]
        assert all("may not name" in text or "cannot" in text for text in refused)
