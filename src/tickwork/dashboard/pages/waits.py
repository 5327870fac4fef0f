"""The open waits: who waits for what, and the forms that answer them."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tickwork._domain.identity import RunId
from tickwork.dashboard import fields
from tickwork.dashboard.pages.renderer import PAGE_SIZE, PageRenderer
from tickwork.dashboard.pages.request_values import parse_or_404


class WaitPages(PageRenderer):
    """The page about waits."""

    async def waits(self, request: Request) -> Response:
        given = request.query_params.get("cursor")
        cursor = None if given is None else RunId(parse_or_404(fields.RUN_ID, given))

        def read() -> dict[str, Any]:
            return {"found": self.app.inspect.waits(cursor=cursor, limit=PAGE_SIZE)}

        return await self.show(request, "waits", read, title="Waits")
