"""What sends tasks: ``python -m shop_tasks.shop``."""

from datetime import date

from shop_tasks.app import app
from shop_tasks.tasks import charge, report


def sell(order: int, amount: int) -> str:
    """Send a task at once, and return its id: ``charge.delay(order, amount).id``."""
    return charge.dispatch(order=order, amount=amount).id


def sell_later(order: int, amount: int) -> str:
    """Send a task with options: ``apply_async(countdown=600, queue=…, priority=…)``."""
    return charge.delay("10m").queue("payments").priority(5).dispatch(order=order, amount=amount).id


def report_month(year: int, month: int, days: int) -> int:
    """Send many tasks in one transaction: ``group(...)``. Return how many were new."""
    runs = report.dispatch_many([{"day": date(year, month, day + 1)} for day in range(days)])
    return sum(run.is_new for run in runs)


if __name__ == "__main__":
    print("Sent", sell(order=7, amount=1250))
    print("Sent", report_month(2026, 2, days=28), "reports")
    app.close()
