"""One queue, and one job: how far behind, how slow, and why."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tickwork._stores.contract import RunFilter
from tickwork.dashboard import fields
from tickwork.dashboard.api import get_queue
from tickwork.dashboard.pages.renderer import PageRenderer
from tickwork.dashboard.pages.request_values import name_of
from tickwork.dashboard.statistics_chart import draw_percentiles

SPANS: dict[str, int] = {"1": 1, "7": 7, "35": 35, "90": 90}
"""The lengths of the history that people can choose, in days."""


class QueuePages(PageRenderer):
    """The pages of a queue and of a job."""

    async def queue(self, request: Request) -> Response:
        name, days = name_of(request), _days_of(request)

        def read() -> dict[str, Any]:
            history = self.app.inspect.queue_history(name, days=days)
            return {
                "title": name,
                "queue": get_queue(self.app, name),
                "history": history,
                "chart": draw_percentiles(history, self.app.inspect.deploys()),
                "days": days,
                "spans": SPANS.values(),
                "entries": self.app.audit.list(subject=f"queue/{name}", limit=5),
            }

        return await self.show(request, "queues", read, title="Queue", template="queue.html")

    async def job(self, request: Request) -> Response:
        name, days = name_of(request), _days_of(request)

        def read() -> dict[str, Any]:
            history = self.app.inspect.job_history(name, days=days)
            return {
                "title": name,
                "explanation": self.app.inspect.explain_job(name),
                "history": history,
                "chart": draw_percentiles(history, self.app.inspect.deploys()),
                "days": days,
                "spans": SPANS.values(),
                "runs": self.app.inspect.list_runs(RunFilter(job=name), limit=15).runs,
                "entries": self.app.audit.list(subject=f"job/{name}", limit=5),
            }

        return await self.show(request, "queues", read, title="Job", template="job.html")


def _days_of(request: Request) -> int:
    text = request.query_params.get("days", "")[: fields.TEXT_MAX]
    return SPANS.get(text, 1)
