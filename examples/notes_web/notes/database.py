"""The file of the program, its table, and its sessions."""

import os
from pathlib import Path
from typing import Final

from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker

URL: Final = f"sqlite:///{Path(os.environ.get('NOTES_FILE', 'notes.db')).absolute()}"

engine = create_engine(URL)
Session = sessionmaker(engine)


class Base(DeclarativeBase):
    """The tables of this program. Those of tickwork are in the same file."""


class Note(Base):
    """A note, and the number of its words once they were counted."""

    __tablename__ = "notes"

    id: Mapped[int] = mapped_column(primary_key=True)
    text: Mapped[str]
    words: Mapped[int | None]
