"""A shop. Its application is in :mod:`shop.jobs`; the other examples use it."""
