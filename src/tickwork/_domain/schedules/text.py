"""Rules as text: one line of JSON that says the kind and the facts."""

import json


def encode_rule(kind: str, **facts: object) -> str:
    """Equal facts give equal text: keys are sorted, and what is None is left out."""
    said = {name: fact for name, fact in facts.items() if fact is not None}
    return json.dumps({"kind": kind, **said}, sort_keys=True, separators=(",", ":"))
