"""Reads runs with large arguments through a dashboard in this process; prints how far it grew."""

import json
import resource
import sys

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient

from tickwork import Tickwork
from tickwork.dashboard import AccessToken, Role, asgi
from tickwork.dashboard.openapi import build_document

READER = AccessToken(name="reader", secret="a-secret-of-the-reader", role=Role.READER)
RUNS = 2_000
CHARACTERS = 60_000
MORE = (
    *("/runs?text=y", "/runs/bulk?text=y", "/api/v1/explanations?what=keep"),
    *("/api/v1/runs?limit=500", "/api/v1/runs?text=y&limit=500", "/api/v1/runs?text=zzz"),
    *("/api/v1/runs?arg=text=z", "/api/v1/firings?limit=500"),
)
EXPORTS = ("/runs/export.json", "/runs/export.csv")


def list_paths(site: Starlette) -> list[str]:
    """All pages, and all endpoints that read, without those for one thing."""
    routes = [route for route in site.routes if isinstance(route, Route)]
    pages = [each.path for each in routes if "GET" in (each.methods or ())]
    document = build_document(server="")
    endpoints = [f"/api/v1{path}" for path, acts in document["paths"].items() if "get" in acts]
    left_out = {"/events", "/login", *EXPORTS}
    return [path for path in (*pages, *endpoints) if "{" not in path and path not in left_out]


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(path: str) -> None:
    app = Tickwork(f"sqlite:///{path}?synchronous=NORMAL")

    @app.job(concurrency=1)
    def keep(text: str) -> None: ...

    app.run()
    site = asgi(app, tokens=[READER])
    assert isinstance(site, Starlette)
    client = TestClient(
        site,
        base_url="http://127.0.0.1:8737",
        client=("127.0.0.1", 50_000),
        headers={"Authorization": f"Bearer {READER.secret}"},
    )
    paths = [*list_paths(site), *MORE]
    for url in (*paths, *EXPORTS):  # loads code and templates
        assert client.get(url).status_code in {200, 404, 422}, url
    for _ in range(RUNS // 50):
        keep.dispatch_many([{"text": "y" * CHARACTERS}] * 50)
    before = peak()
    grown = {}
    for url in paths:
        answer = client.get(url)  # 404, 422: without parameters; 503: a read took too long
        assert answer.status_code in {200, 404, 422, 503}, (url, answer.text)
        grown[url] = peak() - before
    lengths = {}
    for url in (*EXPORTS, "/runs/export.json?text=y"):
        with client.stream("GET", url) as streamed:
            lengths[url] = sum(map(len, streamed.iter_bytes()))
    sys.stdout.write(json.dumps({"grown": grown, "lengths": lengths}))


if __name__ == "__main__":
    main(*sys.argv[1:])
