"""The OpenAPI document, made from the table of endpoints and the types of their results."""

import collections.abc
import types
import typing
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from datetime import date, datetime, timedelta
from enum import Enum
from http import HTTPStatus
from typing import Any, Final, get_args, get_origin

from tickwork._control.schedule_view import ScheduleView
from tickwork._kernel.version import VERSION
from tickwork.dashboard.actions import Act
from tickwork.dashboard.api import ENDPOINTS
from tickwork.dashboard.endpoints import Endpoint
from tickwork.dashboard.fields import InputField
from tickwork.dashboard.glossary import describe

PREFIX: Final = "/api/v1"
_PLAIN: Final[dict[Any, dict[str, Any]]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    datetime: {"type": "string", "format": "date-time"},
    date: {"type": "string", "format": "date"},
    timedelta: {"type": "number", "description": "Seconds."},
}
_PLACES: Final = ("path", "query", "header")
_ALWAYS: Final = (400, 401, 403, 422, 429, 503)
_PROBLEM: Final[dict[str, Any]] = {
    "type": "object",
    "description": "RFC 9457. `field` names the parameter that is not valid, `fix` what to do.",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        name: {
            "type": "integer" if name == "status" else "string",
            "description": describe("Problem", name),
        }
        for name in ("type", "title", "status", "detail", "code", "field", "fix")
    },
}


class _Schemas:
    """Collects the schemas of types, each under its name."""

    def __init__(self) -> None:
        self.by_name: dict[str, Any] = {"Problem": _PROBLEM}

    def of(self, kind: Any) -> dict[str, Any]:
        """The schema of a type of the results."""
        kind = getattr(kind, "__supertype__", kind)  # of a NewType
        if kind in _PLAIN:
            return _PLAIN[kind]
        origin, args = get_origin(kind), get_args(kind)
        if origin in {typing.Union, types.UnionType}:
            return {"anyOf": [self.of(each) for each in args]}
        if origin in {list, tuple, collections.abc.Sequence}:
            return {"type": "array", "items": self.of(args[0])}
        if origin in {dict, collections.abc.Mapping}:
            return {"type": "object", "additionalProperties": self.of(args[1])}
        if isinstance(kind, type) and issubclass(kind, Enum):
            values = [each.value for each in kind]
            return {"enum": values, "type": "integer" if isinstance(values[0], int) else "string"}
        if isinstance(kind, type) and (is_dataclass(kind) or hasattr(kind, "_fields")):
            return self._of_record(kind)
        return {}

    def _of_property(self, record: str, name: str, kind: Any) -> dict[str, Any]:
        schema = self.of(kind)
        unit = schema.get("description", "")
        return {**schema, "description": f"{describe(record, name)} {unit}".strip()}

    def _of_record(self, kind: Any) -> dict[str, Any]:
        name = kind.__name__
        if name not in self.by_name:
            self.by_name[name] = {}  # types may refer to themselves
            hints = typing.get_type_hints(kind)
            if is_dataclass(kind):
                names = [each.name for each in dataclass_fields(kind)]
            else:
                names = list(kind._fields)
            self.by_name[name] = {
                "type": "object",
                "description": (kind.__doc__ or "").split("\n\n")[0],
                "required": names,
                "properties": {each: self._of_property(name, each, hints[each]) for each in names},
            }
        return {"$ref": f"#/components/schemas/{name}"}


def build_document(*, server: str) -> dict[str, Any]:
    """The OpenAPI document of the API below ``server``."""
    schemas = _Schemas()
    paths: dict[str, Any] = {}
    for each in ENDPOINTS:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "tickwork",
            "version": VERSION,
            "description": "Runs, schedules, queues, limits and workers of one database.",
        },
        "servers": [{"url": f"{server}{PREFIX}"}],
        "security": [{"token": []}, {}],
        "paths": paths,
        "components": {
            "schemas": schemas.by_name,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(each: Endpoint, schemas: _Schemas) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": each.name,
        "summary": each.summary,
        "tags": [each.tag],
        "parameters": [_parameter(field) for place in _PLACES for field in each.fields_in(place)],
        "responses": _responses(each, schemas),
    }
    if isinstance(each, Act):
        role = each.role.name.lower()
        found["description"] = f"Needs the role {role}. The action is audited."
    if body := each.fields_in("body"):
        required = [field.name for field in body if field.is_required]
        schema: dict[str, Any] = {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                field.name: {**field.kind.schema, "description": field.description}
                for field in body
            },
        }
        if required:
            schema["required"] = required
        if each.either and each.is_either_required:
            schema["oneOf"] = [{"required": [name]} for name in each.either]
        elif each.either:
            schema["not"] = {"required": list(each.either)}
        found["requestBody"] = {
            "required": bool(required) or each.is_either_required,
            "content": {"application/json": {"schema": schema}},
        }
    return found


def _parameter(field: InputField) -> dict[str, Any]:
    return {
        "name": field.name,
        "in": field.place.name,
        "required": field.is_required,
        "description": field.description,
        "schema": dict(field.kind.schema),
    }


def _responses(each: Endpoint, schemas: _Schemas) -> dict[str, Any]:
    done: dict[str, Any] = {"description": each.summary}
    if each.result is not None:
        done["content"] = {"application/json": {"schema": schemas.of(each.result)}}
    found = {str(each.status): done}
    if each.result is ScheduleView:
        text = {"description": "For If-Match of a change.", "schema": {"type": "string"}}
        done["headers"] = {"ETag": text}
    if each.has_key:
        found["200"] = {**done, "description": "The run existed: no second one was added."}
    also = [413, 415] if each.method != "GET" else []
    if any(field.name == "If-Match" for field in each.fields):
        also.append(412)
    for status in sorted({*_ALWAYS, *each.errors, *also}):
        found[str(status)] = {
            "description": HTTPStatus(status).phrase,
            "content": {
                "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
            },
        }
    return found
