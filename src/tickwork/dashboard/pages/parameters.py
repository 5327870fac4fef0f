"""The fields of a form for the arguments of a job."""

import json
from collections.abc import Collection, Mapping
from typing import Any

from tickwork._define.definition import Definition
from tickwork._kernel.json_form import as_json


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(as_json(value))


def list_parameters(
    definition: Definition, kept: Mapping[str, str], *, masked: Collection[str] = ()
) -> list[dict[str, Any]]:
    """The fields of a form: one for each argument of the handler.

    ``masked`` are arguments that the page does not know, because they have secrets.
    """
    found = []
    for name, each in definition.parameters.signature.parameters.items():
        if each.kind in {each.VAR_POSITIONAL, each.VAR_KEYWORD}:
            continue
        if name == definition.parameters.context:  # the worker gives it
            continue
        is_secret = name in definition.secrets
        annotation = "" if each.annotation is each.empty else _type_name(each.annotation)
        found.append(
            {
                "name": name,
                "annotation": annotation,
                "is_required": each.default is each.empty and name not in definition.options.args,
                "default": "" if each.default is each.empty or is_secret else repr(each.default),
                "value": "" if is_secret else kept.get(f"arg:{name}", ""),
                "is_secret": is_secret,
                "is_masked": name in masked,
                "is_choice": annotation == "bool",
            }
        )
    return found


def _type_name(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
