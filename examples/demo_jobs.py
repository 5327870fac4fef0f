"""The application of `make demo`."""

import time

from tickwork import RunContext, Tickwork

app = Tickwork()  # the URL of the database is in TICKWORK_URL

PAGES = 12
EMAILS_AT_ONCE = 2
ATTEMPTS_NEEDED = 3


class PaymentError(Exception):
    """The bank declined the card."""


@app.job(queue="emails", concurrency={"slots": EMAILS_AT_ONCE, "per": "queue"})
def send_email(to: str) -> str:
    """The limit of its queue allows two runs at a time."""
    time.sleep(0.3)
    return f"sent to {to}"


@app.job(retries={"max": 5, "base": 0.4, "jitter": "none"})
def fetch_rates(ctx: RunContext) -> str:
    """Fails twice and is retried, with a growing delay."""
    if ctx.attempt < ATTEMPTS_NEEDED:
        raise ConnectionError("the bank does not answer")
    return "1 EUR = 1.08 USD"


@app.job(retries={"max": 2, "base": 0.4, "jitter": "none"})
def charge_card(order: int) -> None:
    """Fails at every attempt. The run is kept with all its errors."""
    raise PaymentError(f"the card of order {order} was declined")


@app.job
def import_pages(ctx: RunContext) -> str:
    """Takes a while. The checkpoint lets another worker continue from there."""
    first: int = ctx.checkpoint() or 0
    for page in range(first, PAGES):
        time.sleep(0.25)
        ctx.checkpoint(page + 1)
        ctx.progress((page + 1) / PAGES, note=f"page {page + 1} of {PAGES}")
    return f"pages {first + 1} to {PAGES}"


app.schedule("tick", lambda: "tick").cron("*/2 * * * * *")  # six fields: the first is seconds
app.schedule("sample", lambda: "sampled").every(seconds=3)
backup = app.schedule("backup", lambda: "saved").daily_at("02:30").timezone("Europe/Berlin")
