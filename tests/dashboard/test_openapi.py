"""schemathesis sends requests that it makes from the OpenAPI document, and checks the answers."""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from dashboard.conftest import API, SECRETS, TOKENS, define_jobs
from tickwork import Tickwork
from tickwork.dashboard import Role, asgi
from tickwork.dashboard.schedule_api import ALL_ENDPOINTS


@pytest.fixture(scope="module")
def schema():
    with Tickwork("memory://") as app:
        define_jobs(app)
        app.run()
        for number in range(3):
            app.dispatch("send_email", to=str(number))
        app.run()
        site = asgi(app, tokens=TOKENS)
        headers = {"Authorization": f"Bearer {SECRETS[Role.ADMIN]}"}
        yield schemathesis.openapi.from_asgi(f"{API}/openapi.json", site, headers=headers)


CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@pytest.mark.parametrize("each", ALL_ENDPOINTS, ids=lambda each: each.name)
def test_answers_are_documented(schema, each):
    @settings(
        max_examples=8,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=schema[each.path][each.method].as_strategy())
    def send(case):
        headers = {"Authorization": f"Bearer {SECRETS[Role.ADMIN]}"}
        case.call_and_validate(headers=headers, checks=CHECKS)

    send()


def test_the_document_has_every_endpoint(admin):
    document = admin.get(f"{API}/openapi.json").json()

    found = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    assert found == {(each.method, each.path) for each in ALL_ENDPOINTS}
    assert document["servers"] == [{"url": API}]
