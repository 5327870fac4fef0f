"""The application: what ``Celery("shop", broker=…, backend=…)`` is elsewhere."""

import os

from tickwork import JobDefaults, Tickwork

app = Tickwork(
    os.environ.get("SHOP_URL", "sqlite:///shop.db"),
    timezone="Europe/Berlin",
    defaults=JobDefaults(attempts=4, timeout="5m"),  # task_time_limit
)
