"""Opens the store that a URL names, and has the SQL of the tables."""

from tickwork._stores import Store, open_store, schema_statements

__all__ = ["Store", "open_store", "schema_statements"]
