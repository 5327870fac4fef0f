"""Notes on the web: Flask, SQLAlchemy and tickwork on one SQLite file.

``flask --app notes run`` serves requests, ``flask --app notes tickwork work`` runs the jobs.
"""

from notes.web import create_app

__all__ = ["create_app"]
