"""The Celery application of the conformance suite: Celery workers import it."""

import os

from celery import Celery

from tickwork_conformance.engine_jobs import app

celery = Celery("conformance", broker=os.environ.get("CONFORMANCE_BROKER"))
celery.conf.update(
    task_default_queue=os.environ.get("CONFORMANCE_QUEUE", "conformance"),
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
)
app.use_celery(celery)
