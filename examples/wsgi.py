"""The WSGI application for the Gunicorn example. It dispatches a run for each order."""

from collections.abc import Callable, Iterable
from typing import Any

from shop.jobs import send_receipt


def application(
    environ: dict[str, Any], start_response: Callable[[str, list[tuple[str, str]]], Any]
) -> Iterable[bytes]:
    """``/orders/7`` places order 7. The run is stored when the response is sent."""
    order = int(environ["PATH_INFO"].rpartition("/")[2])
    run = send_receipt.dispatch(order=order)
    start_response("202 Accepted", [("Content-Type", "text/plain")])
    return [f"{run.id}\n".encode()]
