"""The plan of faults depends on the seed alone, and contains every kind."""

from chaos.databases import PostgresDatabase
from chaos.plan import EVERYWHERE, PAUSE, draw_faults


def test_the_same_seed_gives_the_same_faults():
    faults = PostgresDatabase.faults
    assert draw_faults(7, 60, faults) == draw_faults(7, 60, faults)
    assert draw_faults(7, 60, faults) != draw_faults(8, 60, faults)


def test_a_minute_has_many_faults():
    faults = draw_faults(1, 60, PostgresDatabase.faults)

    assert len(faults) >= 55 / PAUSE[1]
    assert all(0 < fault.at < 60 for fault in faults)
    assert sum(fault.name == "upgrade" for fault in faults) == 1


def test_a_long_plan_has_every_kind():
    names = {fault.name for fault in draw_faults(1, 1200, PostgresDatabase.faults)}

    assert names == EVERYWHERE | PostgresDatabase.faults | {"upgrade"}


def test_faults_of_another_database_are_left_out():
    names = {fault.name for fault in draw_faults(1, 1200, {"hog", "step_clock"})}

    assert names == EVERYWHERE | {"hog", "step_clock", "upgrade"}
