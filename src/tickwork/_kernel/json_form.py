"""Values as JSON: what commands print, and what the REST API returns."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, timedelta
from enum import Enum
from typing import Any


def as_json(value: Any) -> Any:
    """Convert a value: times become ISO 8601 text, durations seconds."""
    match value:
        case None | bool() | int() | float():
            return value
        case Enum():
            return value.value
        case str():
            return value
        case datetime() | date():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Mapping():
            return {str(as_json(key)): as_json(each) for key, each in value.items()}
        case tuple() if hasattr(value, "_fields"):
            return {name: as_json(getattr(value, name)) for name in value._fields}
        case list() | tuple() | set() | frozenset():
            return [as_json(each) for each in value]
        case _ if is_dataclass(value):
            return {each.name: as_json(getattr(value, each.name)) for each in fields(value)}
        case _:
            return str(value)
