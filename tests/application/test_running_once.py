"""``run()`` is one tick and one claim, executed here."""

from tickwork import RunStatus


class TestRun:
    """It returns the attempts made, failed ones included."""

    def test_a_dispatched_run_is_executed_and_its_result_kept(self, app):
        @app.job
        def double(number: int) -> int:
            return 2 * number

        run = double.dispatch(21)

        assert run.status is RunStatus.PENDING
        assert app.run() == 1
        assert run.result() == 42
        assert app.run() == 0

    def test_it_claims_at_most_a_batch(self, app):
        @app.job
        def note(number: int) -> None:
            pass

        note.dispatch_many({"number": number} for number in range(5))

        assert [app.run(batch=2) for _ in range(4)] == [2, 2, 1, 0]

    def test_failed_attempts_count(self, app):
        @app.job
        def fail() -> None:
            raise ValueError("as asked")

        run = fail.dispatch()

        assert app.run() == 1
        assert run.status is RunStatus.FAILED_PERMANENT
        assert run.read().reason == "ValueError: as asked"
