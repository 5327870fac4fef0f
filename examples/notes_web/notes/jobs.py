"""The jobs, and a schedule."""

import logging
from collections.abc import Iterator

from flask import current_app
from sqlalchemy import delete

from notes.database import URL, Note, Session
from tickwork import Discard, JobDefaults, RunContext, Tickwork

jobs = Tickwork(URL, defaults=JobDefaults(attempts=3))
log = logging.getLogger("notes")


@jobs.middleware
def tell(ctx: RunContext) -> Iterator[None]:
    """Log each attempt. The lines are stored with the run: ``tickwork inspect``."""
    log.info("%s begins its attempt %d.", ctx.job, ctx.attempt)
    yield


@jobs.job
def count_words(note: int) -> int:
    """Count the words of a note. A note that was deleted meanwhile needs no retry."""
    with Session.begin() as session:
        found = session.get(Note, note)
        if found is None:
            raise Discard(f"The note {note} was deleted.")
        found.words = len(found.text.split())
        current_app.logger.info("The note %d has %d words.", note, found.words)
        return found.words


@jobs.job
def delete_empty_notes() -> int:
    """Delete notes without words. Fired every night."""
    with Session.begin() as session:
        return len(session.scalars(delete(Note).where(Note.words == 0).returning(Note.id)).all())


jobs.schedule("nightly", delete_empty_notes).daily_at("03:00")
