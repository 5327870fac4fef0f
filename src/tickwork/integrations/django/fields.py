"""Fields of the admin's models: ids and times as tickwork stores them."""

import re
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db import models
from django.utils import timezone

_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_START: Final = datetime(1970, 1, 1, tzinfo=UTC)


class TickworkIdField(models.Field):
    """An id: a ``uuid`` on PostgreSQL, a text elsewhere. In Python it is a text."""

    @staticmethod
    def is_valid(text: str) -> bool:
        """Whether it can be an id. PostgreSQL rejects a comparison with anything else."""
        return _ID.fullmatch(text) is not None

    def db_type(self, connection: Any) -> str:
        """The type of the column."""
        return "uuid" if connection.vendor == "postgresql" else "char(36)"

    def from_db_value(self, value: Any, *_: Any) -> str | None:
        """The text of an id."""
        return None if value is None else str(value)

    def to_python(self, value: Any) -> str | None:
        """Check an id, as the admin finds it in an address.

        Raises:
            ValidationError: It cannot be an id, and the database would reject it.
        """
        if value is not None and not self.is_valid(str(value)):
            raise ValidationError(f"{value!r} is not the id of a run or a schedule.")
        return None if value is None else str(value)

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:  # noqa: FBT001, FBT002  # Django's
        """The value for the driver."""
        if value is not None and connection.vendor == "postgresql":
            return uuid.UUID(str(value))
        return value


class InstantField(models.Field):
    """A time that is stored as microseconds since 1970."""

    def db_type(self, connection: Any) -> str:  # Django's
        """The type of the column."""
        return "bigint"

    def from_db_value(self, value: Any, *_: Any) -> datetime | None:
        """The time, with or without a zone as ``USE_TZ`` requires."""
        if value is None:
            return None
        moment = _START + timedelta(microseconds=int(value))
        return moment if timezone.settings.USE_TZ else timezone.make_naive(moment)
