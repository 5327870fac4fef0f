"""Encodes rules as one line of JSON."""

import json


def encode_rule(kind: str, **facts: object) -> str:
    """Equal rules give equal texts: keys are sorted, and None is left out."""
    values = {name: fact for name, fact in facts.items() if fact is not None}
    return json.dumps({"kind": kind, **values}, sort_keys=True, separators=(",", ":"))
