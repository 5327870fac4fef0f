"""Gunicorn with a scheduler in every worker: ``gunicorn -c gunicorn.conf.py wsgi:application``.

With most schedulers this fires everything once for each worker process. Here it is safe. A
schedule is a row of the database: whoever finds it due locks that row, moves its next instant
forward and adds the run, in one transaction. The others find that it was moved. So there is
one run for each instant, however many processes look, on however many machines; and nobody is a
leader whose death would stop the clock.
"""

from typing import Any

bind = "127.0.0.1:8000"
workers = 3
graceful_timeout = 40  # a little longer than the 30 seconds that running jobs have to end


def post_worker_init(_worker: Any) -> None:
    """After the fork, in each worker: threads do not survive one."""
    from shop.jobs import app  # noqa: PLC0415  # in the worker, not in the master

    app.start(threads=2)


def worker_exit(_server: Any, _worker: Any) -> None:
    """Let what runs come to its end; what does not is given back, and costs no attempt."""
    from shop.jobs import app  # noqa: PLC0415

    app.stop()
    app.join()
