"""The application that `make demo` shows: a little of everything."""

import time

from tickwork import RunContext, Tickwork

app = Tickwork()  # the database is in TICKWORK_URL

PAGES = 12
EMAILS_AT_ONCE = 2
ATTEMPTS_UNTIL_ANSWER = 3


class PaymentError(Exception):
    """No retry will change that."""


@app.job(queue="emails", concurrency={"slots": EMAILS_AT_ONCE, "per": "queue"})
def send_email(to: str) -> str:
    """Many are dispatched; the limit of their queue lets two run at a time."""
    time.sleep(0.3)
    return f"sent to {to}"


@app.job(retries={"max": 5, "base": 0.4, "jitter": "none"})
def fetch_rates(ctx: RunContext) -> str:
    """Fails twice, and is tried again, later each time."""
    if ctx.attempt < ATTEMPTS_UNTIL_ANSWER:
        raise ConnectionError("the bank does not answer")
    return "1 EUR = 1.08 USD"


@app.job(retries={"max": 2, "base": 0.4, "jitter": "none"})
def charge_card(order: int) -> None:
    """Fails for good: it is kept, with each of its errors, for a person to decide."""
    raise PaymentError(f"the card of order {order} was declined")


@app.job
def import_pages(ctx: RunContext) -> str:
    """Takes a while, and remembers how far it is: whoever takes over goes on from there."""
    first: int = ctx.checkpoint() or 0
    for page in range(first, PAGES):
        time.sleep(0.25)
        ctx.checkpoint(page + 1)
        ctx.progress((page + 1) / PAGES, note=f"page {page + 1} of {PAGES}")
    return f"pages {first + 1} to {PAGES}"


app.schedule("tick", lambda: "tick").cron("*/2 * * * * *")  # with seconds: they come first
app.schedule("sample", lambda: "sampled").every(seconds=3)
backup = app.schedule("backup", lambda: "saved").daily_at("02:30").timezone("Europe/Berlin")
