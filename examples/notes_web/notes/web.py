"""The routes, and the commands of tickwork below ``flask tickwork``."""

from typing import Any

from flask import Flask, request

from notes.database import Base, Note, Session, engine
from notes.jobs import count_words, jobs
from tickwork.integrations.flask import FlaskTickwork

extension = FlaskTickwork(jobs, create_app="notes.web:create_app")


def create_app() -> Flask:
    """Make the web application. The tables are created here, in the same file."""
    web = Flask(__name__)
    extension.init_app(web)
    jobs.install()
    Base.metadata.create_all(engine)

    @web.post("/notes")
    def add_note() -> tuple[dict[str, Any], int]:
        with Session.begin() as session:
            note = Note(text=request.get_json()["text"])
            session.add(note)
            session.flush()
            run = count_words.using(session).dispatch(note=note.id)
            return {"id": note.id, "run": run.id}, 201

    @web.get("/notes/<int:note_id>")
    def show_note(note_id: int) -> tuple[dict[str, Any], int]:
        with Session() as session:
            note = session.get(Note, note_id)
        if note is None:
            return {"error": "There is no such note."}, 404
        return {"text": note.text, "words": note.words}, 200

    return web
