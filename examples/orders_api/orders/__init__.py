"""Orders over HTTP: FastAPI, async SQLAlchemy and tickwork on one PostgreSQL database."""
