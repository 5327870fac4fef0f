"""Encodes rules as one line of JSON."""

import json


def encode_rule(kind: str, **values_by_name: object) -> str:
    """Equal rules give equal texts: keys are sorted, and None is left out."""
    values = {name: value for name, value in values_by_name.items() if value is not None}
    return json.dumps({"kind": kind, **values}, sort_keys=True, separators=(",", ":"))
