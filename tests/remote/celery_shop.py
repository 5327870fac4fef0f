"""A program whose jobs Celery workers execute. The tests start it in several processes."""

import os
import time
from pathlib import Path

from celery import Celery

from chaos.journal import AttemptJournal, Journal
from tickwork import JobDefaults, RunContext, Tickwork
from tickwork.integrations.celery import celery_task

NOTES = Path(os.environ.get("SHOP_NOTES", ""))

celery = Celery("shop", broker=os.environ.get("SHOP_BROKER"))
celery.conf.update(
    task_default_queue=os.environ.get("SHOP_QUEUE", "shop"),
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    worker_hijack_root_logger=False,
)
app = Tickwork(
    os.environ.get("SHOP_URL", "memory://"),
    defaults=JobDefaults(engine="celery", lease=os.environ.get("SHOP_LEASE", "6s"), crashes=100),
)
app.use_celery(celery)


attempt = AttemptJournal(Journal(Path(os.environ.get("SHOP_JOURNAL", os.devnull)), "shop")).attempt


def write(line: str) -> None:
    with NOTES.open("a", encoding="utf-8") as notes:
        notes.write(f"{line} {os.getpid()} {time.monotonic():.3f}\n")


@app.job
def note(number: int, seconds: float = 0.0) -> int:
    write(f"note-{number}")
    time.sleep(seconds)
    return 2 * number


@app.job(engine="auto")
def here() -> int:
    return os.getpid()


@app.job
def there() -> int:
    return os.getpid()


@app.job
def patient(ctx: RunContext) -> str:
    write("patient")
    with attempt() as nonce:
        for _ in range(200):
            if ctx.is_canceled():
                return f"stopped {nonce}"
            time.sleep(0.05)
        return f"done {nonce}"


@app.job
def journaled(seconds: float) -> str:
    with attempt() as nonce:
        time.sleep(seconds)
        return nonce


@app.job(concurrency=2)
def limited(seconds: float) -> str:
    with attempt() as nonce:
        time.sleep(seconds)
        return nonce


@celery.task(name="shop.tasks.send")
def send(to: str = "") -> None:
    write(f"sent-{to}")


app.schedule("send", celery_task("shop.tasks.send", celery=celery)).engine("thread").args(to="all")
