"""An application on SQLite, and clients of its dashboard."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from tickwork import Secret, Tickwork
from tickwork.dashboard import AccessToken, Role, asgi
from tickwork.dashboard.authentication import identify_loopback

SECRETS = {role: f"{role.name.lower()}-secret-of-the-tests" for role in Role}
TOKENS = [
    AccessToken(name=f"{role.name.lower()} ann", secret=SECRETS[role], role=role) for role in Role
]
API = "/api/v1"


def define_jobs(app: Tickwork) -> None:
    @app.job(queue="emails", concurrency=2)
    def send_email(to: str, count: int = 1) -> str:
        return f"{count} to {to}"

    @app.job
    def fails() -> None:
        raise ValueError("<script>alert(1)</script>")

    @app.job
    def sign_in(password: Secret[str]) -> None: ...

    app.schedule("nightly", send_email).daily().hours(2).args(to="ann@example.org")


@pytest.fixture
def app(tmp_path: Any) -> Iterator[Tickwork]:
    with Tickwork(f"sqlite:///{tmp_path}/jobs.db?synchronous=NORMAL") as app:
        define_jobs(app)
        app.run()  # writes the definitions
        yield app


@pytest.fixture
def client_of(app: Tickwork) -> Iterator[Callable[..., TestClient]]:
    opened: list[TestClient] = []

    def connect(
        role: Role | None = None,
        *,
        address: str = "127.0.0.1",
        host: str = "127.0.0.1:8737",
        of: Tickwork = app,
        **options: Any,
    ) -> TestClient:
        if role is not None:
            options.setdefault("tokens", TOKENS)
        elif not options.keys() & {"tokens", "identify"}:
            options["identify"] = identify_loopback  # as with --no-token
        client = TestClient(
            asgi(of, **options),
            base_url=f"http://{host}",
            client=(address, 50_000),
            follow_redirects=False,
            headers={} if role is None else {"Authorization": f"Bearer {SECRETS[role]}"},
        )
        opened.append(client)
        return client

    yield connect
    for client in opened:
        client.close()


@pytest.fixture
def admin(client_of: Callable[..., TestClient]) -> TestClient:
    return client_of(Role.ADMIN)
