"""A shop with an application in :mod:`shop.jobs`, as the other examples run it."""
