"""Gunicorn with a scheduler in every worker: ``gunicorn -c gunicorn.conf.py wsgi:application``.

With most schedulers every schedule would fire once per worker process. Here it is safe. A
schedule is a row in the database. A process that finds it due locks the row, moves its next
instant forward and adds the run, in one transaction. The other processes find the next
instant in the row. So an instant creates at most one run, for any number of processes and machines,
and there is no leader whose death would stop the schedules.
"""

from typing import Any

bind = "127.0.0.1:8000"
workers = 3
graceful_timeout = 40  # longer than the drain of 30 seconds


def post_worker_init(_worker: Any) -> None:
    """Start a worker after the fork, because threads do not survive a fork."""
    from shop.jobs import app  # noqa: PLC0415  # imported in the worker, not in the master

    app.start(threads=2)


def worker_exit(_server: Any, _worker: Any) -> None:
    """Drain: running work may finish, and the rest is released without costing an attempt."""
    from shop.jobs import app  # noqa: PLC0415

    app.stop()
    app.join()
