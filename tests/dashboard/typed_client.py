"""Writes a typed client of the API, from its OpenAPI document alone.

It is what a user of a code generator gets: if the document is wrong or vague, so is the client.
"""

import keyword
import re
from collections.abc import Iterator, Mapping
from typing import Any

PREAMBLE = '''"""Generated from the OpenAPI document."""

from collections.abc import Callable
from typing import Any, Literal, NotRequired, TypedDict, cast


class ApiError(Exception):
    """A problem that the API reports."""

    def __init__(self, problem: "Problem") -> None:
        super().__init__(problem["detail"])
        self.problem = problem
'''

CLIENT = '''
Send = Callable[[str, str, dict[str, Any], dict[str, Any] | None], tuple[int, Any]]
"""Sends a request (method, path, query, body), and returns the status and the JSON."""


class Client:
    """A method for each operation."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def _call(
        self, method: str, path: str, query: dict[str, Any], body: dict[str, Any] | None
    ) -> Any:
        kept = {name: value for name, value in query.items() if value is not None}
        status, value = self._send(method, path, kept, body)
        if status >= 400:
            raise ApiError(cast("Problem", value))
        return value
'''


def write_client(document: Mapping[str, Any]) -> str:
    """The source of a module with a type for each schema, and a method for each operation."""
    lines = [PREAMBLE]
    for name, schema in document["components"]["schemas"].items():
        lines += ["", *_record(name, schema)]
    lines.append(CLIENT)
    for path, item in document["paths"].items():
        for method, operation in item.items():
            lines += ["", *_method(path, method, operation)]
    return "\n".join(lines) + "\n"


def _record(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f'{name} = TypedDict("{name}", {{'
    for key, each in schema["properties"].items():
        text = _type_of(each, is_quoted=True)
        is_required = key in schema.get("required", ())
        yield f'    "{key}": {text if is_required else f"NotRequired[{text}]"},'
    yield "})"


def _type_of(schema: Mapping[str, Any], *, is_quoted: bool = False) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'"{name}"' if is_quoted else name
    if "anyOf" in schema:
        parts = [_type_of(each) for each in schema["anyOf"]]
        text = " | ".join(dict.fromkeys(parts))
        return f'"{text}"' if is_quoted else text
    if "enum" in schema:
        return f"Literal[{', '.join(map(repr, schema['enum']))}]"
    match schema.get("type"):
        case "array":
            inner = _type_of(schema["items"])
            return f'"list[{inner}]"' if is_quoted else f"list[{inner}]"
        case "object":
            values = schema.get("additionalProperties", {})
            inner = _type_of(values) if isinstance(values, Mapping) else "Any"
            return f'"dict[str, {inner}]"' if is_quoted else f"dict[str, {inner}]"
        case str(kind):
            return {
                "string": "str",
                "integer": "int",
                "number": "float",
                "boolean": "bool",
                "null": "None",
            }[kind]
        case _:
            return "Any"


def _method(path: str, method: str, operation: Mapping[str, Any]) -> Iterator[str]:
    places = {each["name"]: each for each in operation["parameters"] if each["in"] != "header"}
    in_path = [name for name, each in places.items() if each["in"] == "path"]
    in_query = [name for name, each in places.items() if each["in"] == "query"]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    fields = body.get("schema", {}).get("properties", {})
    required = {
        *(name for name, each in places.items() if each["required"]),
        *body.get("schema", {}).get("required", ()),
    }
    types = {name: _type_of(each["schema"]) for name, each in places.items()}
    types |= {name: _type_of(each) for name, each in fields.items()}
    result = _result_of(operation)
    yield f"    def {operation['operationId']}("
    yield "        self,"
    yield from (f"        {_safe(name)}: {types[name]}," for name in in_path)
    named = [name for name in types if name not in in_path]
    if named:
        yield "        *,"
    for name in sorted(named, key=lambda name: name not in required):
        default = "" if name in required else " | None = None"
        yield f"        {_safe(name)}: {types[name]}{default},"
    yield f"    ) -> {result}:"
    filled = re.sub(r"\{(\w+)\}", lambda found: "{" + _safe(found[1]) + "}", path)
    query = ", ".join(f'"{name}": {_safe(name)}' for name in in_query)
    values = ", ".join(f'"{name}": {_safe(name)}' for name in fields)
    yield f"        query: dict[str, Any] = {{{query}}}"
    yield f"        values: dict[str, Any] = {{{values}}}"
    yield "        body = {name: value for name, value in values.items() if value is not None}"
    sent = "body" if fields else "body or None"
    call = f'self._call("{method.upper()}", f"{filled}", query, {sent})'
    yield f"        {call}" if result == "None" else f'        return cast("{result}", {call})'


def _safe(name: str) -> str:
    """The name of an argument: ``self`` and keywords are taken."""
    return f"{name}_" if keyword.iskeyword(name) or name == "self" else name


def _result_of(operation: Mapping[str, Any]) -> str:
    for status, response in operation["responses"].items():
        if status.startswith("2") and "content" in response:
            return _type_of(response["content"]["application/json"]["schema"])
    return "None"
