"""For programs that describe their own tables with SQLAlchemy, and migrate them with Alembic."""

from typing import Final

_PREFIX: Final = "tickwork_"


def include_object(
    thing: object,  # noqa: ARG001  # Alembic passes five arguments, by position
    name: str | None,
    type_: str,
    reflected: bool,  # noqa: FBT001
    compare_to: object,
) -> bool:
    """Keep Alembic's autogenerate from dropping the tables of tickwork.

    They are in the database, but not in your metadata, so autogenerate proposes to drop them.
    In ``env.py``::

        from tickwork.integrations.sqlalchemy import include_object

        context.configure(..., include_object=include_object)

    >>> include_object(None, "tickwork_run", "table", True, None)
    False
    >>> include_object(None, "orders", "table", True, None)
    True
    """
    is_unknown = type_ == "table" and reflected and compare_to is None
    return not (is_unknown and name is not None and name.startswith(_PREFIX))
