"""The public face: what users may import, and nothing by accident."""

import tickwork
from tickwork import contracts, errors, schedules, testing


def test_the_root_exports_just_these_names():
    # A snapshot: a name that comes or goes is a decision, and belongs in the changelog.
    assert set(tickwork.__all__) == {
        "AsyncDraft",
        "AsyncRunHandle",
        "Attempt",
        "Clock",
        "Cron",
        "Discard",
        "Draft",
        "Job",
        "JobBuilder",
        "JobDefaults",
        "JobResult",
        "Misfire",
        "Overlap",
        "RetryLater",
        "Run",
        "RunContext",
        "RunFilter",
        "RunHandle",
        "RunStatus",
        "ScheduleBuilder",
        "ScheduleDefinition",
        "ScheduleView",
        "ScheduledJob",
        "Secret",
        "Snooze",
        "Tickwork",
        "TickworkError",
        "UndispatchedDraft",
        "__version__",
        "current_run",
    }


def test_contracts_exports_just_these_names():
    assert set(contracts.__all__) == {
        "AppLocation",
        "CalendarEntry",
        "CalendarExporter",
        "Clock",
        "Engine",
        "EngineHealth",
        "EngineHost",
        "EngineRegistration",
        "EngineSetup",
        "Handover",
        "JobHandler",
        "RemoteEngine",
        "Store",
        "ThreadEngine",
        "ThreadPoolEngine",
        "Transport",
        "encode_message",
    }


def test_testing_exports_just_these_names():
    assert set(testing.__all__) == {
        "AttemptResult",
        "DispatchedRun",
        "DrainResult",
        "ManualClock",
        "aio",
        "answer",
        "app",
        "assert_dispatched",
        "assert_not_dispatched",
        "assert_nothing_dispatched",
        "dispatched",
        "drain",
        "immediately",
        "isolated",
        "steps",
        "swap",
        "travel",
        "travel_to",
        "watching",
    }


def test_every_exported_name_is_there():
    for module in (tickwork, contracts, schedules, testing):
        for name in module.__all__:
            assert getattr(module, name) is not None
    assert dir(tickwork) == sorted(tickwork.__all__)


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(tickwork, "Scheduler")


def test_errors_have_one_tree():
    found = [value for value in vars(errors).values() if isinstance(value, type)]
    for kind in found:
        if kind.__module__ == errors.__name__ and not issubclass(kind, Warning):
            assert issubclass(kind, (errors.TickworkError, errors.Signal, errors.SuspendRun))
