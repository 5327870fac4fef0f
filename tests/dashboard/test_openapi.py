"""schemathesis sends requests that it makes from the OpenAPI document, and checks the answers."""

import re
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    content_type_conformance,
    negative_data_rejection,
    positive_data_acceptance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from dashboard.conftest import API, SECRETS, TOKENS, define_jobs
from tickwork import Tickwork
from tickwork._kernel.durations import parse_duration
from tickwork.dashboard import Role, asgi
from tickwork.dashboard.api import ENDPOINTS
from tickwork.dashboard.fields import DURATION
from tickwork.dashboard.glossary import MEANINGS


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
    unsupported_method,
    allow_header_conformance,
    negative_data_rejection,
]

ACCEPTING = [*CHECKS, positive_data_acceptance]

BEYOND_THE_DOCUMENT = {
    "preview_expression": "the rule, and the name of a time zone",
    "get_schedule_days": "the name of a time zone",
    "create_schedule": "the rule, the job and its arguments",
    "change_schedule": "the same",
    "dispatch_run": "the arguments of the handler",
    "signal_run": "the characters and the length of a name, and the size of the data",
    "emit_event": "the same, and those of the key",
    "backfill_schedule": "since is not later than until",
    "pause_schedule": "until is in the future",
    "pause_job": "the same",
    "pause_queue": "the same, and the characters of a name",
    "resume_job": "the characters of a name",
    "resume_queue": "the same",
    "list_runs": "half of a surrogate pair",
}
"""Endpoints with rules that a schema cannot express: they refuse some requests that fit it."""


@pytest.mark.parametrize("each", ENDPOINTS, ids=lambda each: each.name)
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
        checks = CHECKS if each.name in BEYOND_THE_DOCUMENT else ACCEPTING
        case.call_and_validate(headers=headers, checks=checks)

    send()


class TestSequences:
    """Requests that use what earlier answers had: created, changed, removed, and read again."""

    def test_answers_are_documented_in_any_order(self, schema):
        headers = {"Authorization": f"Bearer {SECRETS[Role.ADMIN]}"}
        # By operation: successful requests with a value of an earlier answer.
        followed: Counter[str] = Counter()
        machine: Any = schema.as_state_machine()

        class Requests(machine):  # type: ignore[misc]  # schemathesis makes it at run time
            def step(self, input):  # noqa: A002  # its name in schemathesis
                output = super().step(input)
                if input.transition is not None and output.response.status_code < 300:
                    followed[input.case.operation.label] += 1
                return output

            def get_call_kwargs(self, case):
                return {"headers": headers}

            def validate_response(self, response, case, additional_checks=(), **kwargs):
                case.validate_response(response, checks=CHECKS, headers=headers)

        Requests.run(
            settings=settings(
                max_examples=20,
                stateful_step_count=8,
                deadline=None,
                database=None,
                derandomize=True,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
        )
        assert followed


def _find_undescribed(node, path=""):
    """Parameters and properties without a description, wherever they are in a document."""
    if isinstance(node, list):
        for number, each in enumerate(node):
            yield from _find_undescribed(each, f"{path}/{number}")
    elif isinstance(node, dict):
        if "in" in node and "schema" in node and not node.get("description"):
            yield f"{path} {node['name']}"
        for name, each in node.items():
            if name == "properties":
                yield from (f"{path}/{key}" for key in each if not each[key].get("description"))
            inner = list(each.values()) if name == "properties" else each
            yield from _find_undescribed(inner, f"{path}/{name}")


def test_every_property_has_a_description(admin):
    document = admin.get(f"{API}/openapi.json").json()

    assert list(_find_undescribed(document)) == []


def test_every_meaning_belongs_to_a_property(admin):
    schemas = admin.get(f"{API}/openapi.json").json()["components"]["schemas"]
    keys = {f"{record}.{name}" for record in schemas for name in schemas[record]["properties"]}
    names = {key.partition(".")[2] for key in keys}

    assert set(MEANINGS) <= keys | names


@settings(deadline=None, database=None, max_examples=300)
@given(st.from_regex(DURATION.schema["pattern"], fullmatch=True).filter(bool))
def test_every_duration_that_the_document_allows_is_valid(text):
    assume(len(text) <= DURATION.schema["maxLength"])
    assert parse_duration(text) >= timedelta(0)


@pytest.mark.parametrize(
    "text", ["90s", "1h30m", "1h 30 minutes", "2 days", "1.5h", "2w", "500 ms", "7us", "0s"]
)
def test_the_document_allows_durations(text):
    assert re.search(DURATION.schema["pattern"], text)


@pytest.mark.parametrize("text", ["5", "m", "-5m", "5m 5m", "5m 1h", "5 parsecs", "1e3s", "0.5us"])
def test_the_document_allows_no_other_durations(text):
    assert not re.search(DURATION.schema["pattern"], text)


def test_the_document_has_every_endpoint(admin):
    document = admin.get(f"{API}/openapi.json").json()

    found = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    assert found == {(each.method, each.path) for each in ENDPOINTS}
    assert document["servers"] == [{"url": API}]
