"""Where alerts go when a schedule is late or a job keeps failing, and when that is over.

>>> from tickwork import Tickwork
>>> from tickwork.alerts import Webhook
>>> app = Tickwork("memory://")
>>> app.alerts.add(Webhook("https://example.com/hook", secret="s3cret"))

``Webhook``, ``Slack`` and ``Email`` are targets; an object with the methods of ``AlertTarget`` is
one, too.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tickwork.alerts.contract import AlertMessage, AlertTarget, FailingJobAlert, MissedRunAlert
    from tickwork.alerts.http import Slack, Webhook, verify_signature
    from tickwork.alerts.mail import Email
    from tickwork.alerts.registry import Alerts

__all__ = [
    "AlertMessage",
    "AlertTarget",
    "Alerts",
    "Email",
    "FailingJobAlert",
    "MissedRunAlert",
    "Slack",
    "Webhook",
    "verify_signature",
]

# Loaded at their first use: a worker without targets needs neither HTTP nor SMTP.
_HOMES = {
    "AlertMessage": "contract",
    "FailingJobAlert": "contract",
    "MissedRunAlert": "contract",
    "AlertTarget": "contract",
    "Alerts": "registry",
    "Email": "mail",
    "Slack": "http",
    "Webhook": "http",
    "verify_signature": "http",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tickwork.alerts' has no attribute {name!r}")
    return getattr(import_module(f"tickwork.alerts.{_HOMES[name]}"), name)
