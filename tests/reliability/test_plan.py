"""Faults come from the seed: the same again, and every kind of them sooner or later."""

from chaos.databases import ServerDatabase
from chaos.plan import EVERYWHERE, PAUSE, drawn


def test_the_same_seed_throws_the_same_faults():
    assert drawn(7, 60, ServerDatabase.faults) == drawn(7, 60, ServerDatabase.faults)
    assert drawn(7, 60, ServerDatabase.faults) != drawn(8, 60, ServerDatabase.faults)


def test_a_minute_holds_many_of_them():
    faults = drawn(1, 60, ServerDatabase.faults)

    assert len(faults) >= 55 / PAUSE[1]
    assert all(0 < fault.at < 60 for fault in faults)
    assert sum(fault.name == "upgrade" for fault in faults) == 1


def test_every_kind_is_thrown_sooner_or_later():
    names = {fault.name for fault in drawn(1, 1200, ServerDatabase.faults)}

    assert names == EVERYWHERE | ServerDatabase.faults | {"upgrade"}


def test_what_a_database_cannot_have_is_not_thrown():
    names = {fault.name for fault in drawn(1, 1200, {"hog"})}

    assert names == EVERYWHERE | {"hog", "upgrade"}
