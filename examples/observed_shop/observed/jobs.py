"""The jobs, observed: ``tickwork -a observed.jobs:app work --http :8080``."""

import os

import sentry_sdk

from tickwork import Secret, Tickwork
from tickwork.integrations import opentelemetry, prometheus, sentry

sentry_sdk.init(os.environ.get("SENTRY_DSN"))
app = Tickwork(os.environ.get("SHOP_URL", "sqlite:///shop.db"))

# In this order: a span contains what follows.
opentelemetry.instrument(app)
prometheus.instrument(app)
sentry.instrument(app)


@app.job(queue="payments")
def charge(customer: str, card: Secret[str], amount: int) -> str:
    """Charge a card. Its number is masked wherever it could be shown."""
    if amount <= 0:
        raise ValueError(f"The card {card} cannot be charged {amount}.")
    return f"{customer} paid {amount}"


@app.job
def close_day() -> None:
    """Close the books. The monitor in Sentry is called close-books."""


app.schedule("close-books", close_day).daily_at("23:30").timezone("Europe/Berlin")
