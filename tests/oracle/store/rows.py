"""Copies rows with a few fields changed."""

from collections.abc import Callable
from dataclasses import fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tickwork._stores._sql.rows import compile_function, draft_class

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

R = TypeVar("R", bound="DataclassInstance")

_FUNCTIONS_MAX: Final = 200


def replace_fields(row: R, **changes: Any) -> R:
    """Copy a frozen dataclass with slots: ``dataclasses.replace`` at a tenth of its cost.

    With ``dataclasses.replace``, copies took a fifth of the time of a run in memory. The new row
    is checked by its ``__post_init__`` as usual.
    """
    made: R = _compile_replace(type(row), *changes)(row, *changes.values())
    return made


@lru_cache(maxsize=_FUNCTIONS_MAX)
def _compile_replace(kind: type["DataclassInstance"], *names: str) -> Callable[..., Any]:
    slots = [field.name for field in fields(kind)]
    unknown = set(names) - set(slots)
    if unknown:
        raise TypeError(f"{kind.__name__} has no field {min(unknown)}.")
    filled = [f"made.{slot} = {slot if slot in names else f'row.{slot}'}" for slot in slots]
    checked = ["made.__post_init__()"] if hasattr(kind, "__post_init__") else []
    return compile_function(
        ", ".join(["row", *names]),
        "made = Draft()",
        *filled,
        "made.__class__ = Made",
        *checked,
        "return made",
        Draft=draft_class(kind),
        Made=kind,
    )
