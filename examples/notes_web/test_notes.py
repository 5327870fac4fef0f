"""The application is moved into memory for each test; the notes are in a file of the test."""

from collections.abc import Iterator

import pytest
from flask.testing import FlaskClient
from notes import create_app
from notes.database import Base, Note, Session, engine
from notes.jobs import count_words, delete_empty_notes, jobs

from tickwork import Tickwork
from tickwork.integrations.pytest_plugin import Swap
from tickwork.testing import assert_dispatched, assert_nothing_dispatched, drain, travel


@pytest.fixture
def client() -> Iterator[FlaskClient]:
    """A client of the web application, with no notes."""
    web = create_app()
    yield web.test_client()
    Base.metadata.drop_all(engine)
    engine.dispose()


@pytest.fixture
def tickwork_app(client: FlaskClient, tickwork_swap: Swap) -> Tickwork:
    """The jobs in memory, on a clock that the test moves."""
    return tickwork_swap(jobs)


def test_the_words_of_a_note_are_counted(client: FlaskClient, tickwork_app: Tickwork) -> None:
    added = client.post("/notes", json={"text": "buy bread and milk"}).get_json()
    assert_dispatched(tickwork_app, count_words, args={"note": added["id"]})

    [attempt] = drain(tickwork_app)

    assert attempt.result == 4
    assert client.get(f"/notes/{added['id']}").get_json()["words"] == 4


def test_the_commands_are_below_flask(client: FlaskClient, tickwork_app: Tickwork) -> None:
    client.post("/notes", json={"text": "buy bread"})

    done = client.application.test_cli_runner().invoke(args=["tickwork", "collect"])

    assert "1 attempt, 0 failed" in done.output


def test_a_deleted_note_is_not_retried(client: FlaskClient, tickwork_app: Tickwork) -> None:
    added = client.post("/notes", json={"text": "buy bread"}).get_json()
    with Session.begin() as session:
        session.delete(session.get_one(Note, added["id"]))

    [attempt] = drain(tickwork_app)

    assert attempt.due_at is None
    assert "was deleted" in attempt.error


def test_an_invalid_request_dispatches_nothing(client: FlaskClient, tickwork_app: Tickwork) -> None:
    assert client.post("/notes", json={"txt": "a mistake"}).status_code == 500

    assert_nothing_dispatched(tickwork_app)


def test_empty_notes_are_deleted_at_night(client: FlaskClient, tickwork_app: Tickwork) -> None:
    client.post("/notes", json={"text": ""})

    done = travel(tickwork_app, days=1)

    assert [attempt.result for attempt in done.of(delete_empty_notes)] == [1]
    assert client.get("/notes/1").status_code == 404
