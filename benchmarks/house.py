"""Figures about the worker and its options: how many things carry the same things.

The tests of ``tests/architecture`` hold them; ``make shape`` prints them, also of an older commit.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

VALUE_BASES: Final = {"NamedTuple", "Enum", "StrEnum", "IntEnum", "Flag", "IntFlag"}
CONTEXT: Final = "RunContext"
HELD_MIN: Final = 5
"""A class that has so many services as attributes carries them for others."""

VAGUE_NAMES: Final = {"found", "given"}
"""Names of variables that say where a value comes from, and not what it is."""

PLAIN_NUMBERS: Final = {-1, 0, 1, 2}
CONNECTIVE: Final = re.compile(
    r"\b(because|since|so|or|but|otherwise|while|until|unless|than|too|nothing|only|about|may"
    r"|must|can(?:not)?|shorter|longer|would|if)\b|[:;(]"
)
"""A sentence with one of these states more than the name of a constant."""


class Tree(NamedTuple):
    """A module of the package."""

    path: Path
    lines: list[str]
    nodes: list[ast.AST]
    body: list[ast.stmt]


class LongFunction(NamedTuple):
    """A function, and how many lines it has."""

    lines: int
    path: Path
    name: str


def read_trees(source: Path) -> list[Tree]:
    trees = []
    for path in sorted(source.rglob("*.py")):
        text = path.read_text("utf-8")
        tree = ast.parse(text)
        trees.append(Tree(path, text.splitlines(), list(ast.walk(tree)), tree.body))
    return trees


def find_longest_function(trees: Sequence[Tree]) -> LongFunction:
    return max(
        LongFunction((node.end_lineno or 0) - node.lineno + 1, tree.path, node.name)
        for tree in trees
        for node in tree.nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def find_context_constructions(trees: Sequence[Tree]) -> list[str]:
    """The modules that construct the context of an attempt; a call without a run is no attempt."""
    return [
        tree.path.stem
        for tree in trees
        for node in tree.nodes
        if isinstance(node, ast.Call)
        and last_name(node.func) == CONTEXT
        and tree.path.stem != "direct_call"
    ]


def find_holders(trees: Sequence[Tree]) -> list[str]:
    """The classes on the way to a worker that carry services from one place to another."""
    classes = {
        node.name: node for tree in trees for node in tree.nodes if isinstance(node, ast.ClassDef)
    }
    rooms = [tree for tree in trees if tree.path.parent.name == "_worker"]
    rooms += [tree for tree in trees if tree.path.stem.endswith(("composition", "application"))]
    return sorted(
        node.name
        for tree in rooms
        for node in tree.nodes
        if isinstance(node, ast.ClassDef)
        and sum(is_service(name, classes) for name in attribute_types(node)) >= HELD_MIN
    )


def attribute_types(node: ast.ClassDef) -> Iterator[str]:
    """The types of public attributes: fields, properties, and what is built once."""
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign):
            yield type_name(statement.annotation)
        elif (
            isinstance(statement, ast.FunctionDef)
            and statement.decorator_list
            and not statement.name.startswith("_")
            and statement.returns is not None
        ):
            yield type_name(statement.returns)


def type_name(annotation: ast.expr) -> str:
    if isinstance(annotation, ast.Constant):
        return str(annotation.value)
    return last_name(annotation)


def is_service(name: str, classes: dict[str, ast.ClassDef]) -> bool:
    node = classes.get(name)
    return node is not None and not is_value_type(node)


def count_vague_names(trees: Sequence[Tree]) -> int:
    return sum(
        (node.id if isinstance(node, ast.Name) else node.arg) in VAGUE_NAMES
        for tree in trees
        for node in tree.nodes
        if isinstance(node, ast.Name | ast.arg)
    )


def find_unexplained_numbers(trees: Sequence[Tree]) -> list[str]:
    """Numbers of the worker and the engines without a reason beside them.

    A reason is a comment on the line, or a docstring after the constant or its group that states
    more than what it is. The values -1, 0, 1 and 2, slices and sizes of digests need none.
    """
    return [
        f"{tree.path.name}:{line}: {tree.lines[line - 1].strip()}"
        for tree in trees
        if {"_worker", "_engines"} & set(tree.path.parts)
        for line in _unexplained_lines(tree)
    ]


def _unexplained_lines(tree: Tree) -> Iterator[int]:
    explained: set[int] = set()
    for place, statement in enumerate(tree.body):
        following = tree.body[place + 1 :]
        if isinstance(statement, ast.AnnAssign | ast.Assign) and _has_reason(following):
            explained.update(range(statement.lineno, (statement.end_lineno or 0) + 1))
    plain = {id(each) for node in tree.nodes for each in _plain_numbers(node)}
    numbers = sorted({line for node in tree.nodes for line in _number_lines(node, plain)})
    for line in numbers:
        above, text = tree.lines[line - 2].strip(), tree.lines[line - 1]
        if line not in explained and "  # " not in text and not above.startswith("# "):
            yield line


def _has_reason(following: Sequence[ast.stmt]) -> bool:
    for statement in following:
        if isinstance(statement, ast.AnnAssign | ast.Assign):
            continue  # a group has one docstring
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            return CONNECTIVE.search(str(statement.value.value)) is not None
        return False
    return False


def _plain_numbers(node: ast.AST) -> Iterator[ast.AST]:
    """The numbers in slices, powers of two, characters and sizes of digests."""
    if isinstance(node, ast.Slice):
        yield from ast.walk(node)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        yield from (node.left, node.right)
    elif isinstance(node, ast.Call) and last_name(node.func) == "chr":
        yield from node.args
    elif isinstance(node, ast.keyword) and node.arg == "digest_size":
        yield node.value


def _number_lines(node: ast.AST, plain: set[int]) -> Iterator[int]:
    if id(node) in plain:
        return
    if isinstance(node, ast.Constant) and type(node.value) in {int, float}:
        if node.value not in PLAIN_NUMBERS:
            yield node.lineno
    elif isinstance(node, ast.AnnAssign | ast.Assign) and node.col_offset == 0:
        # A constant of the module: one second needs a reason, too.
        values = ast.walk(node.value) if node.value is not None else ()
        if any(isinstance(each, ast.Constant) and type(each.value) is float for each in values):
            yield node.lineno


def read_concepts(architecture: Path) -> list[str]:
    """The concepts that a contributor of the worker must know, as ARCHITECTURE.md lists them."""
    text = architecture.read_text("utf-8")
    _, _, after = text.partition("\n### Concepts\n")
    table, _, _ = after.partition("\n###")
    return re.findall(r"^\| \*\*(.+?)\*\*", table, re.MULTILINE)


def is_value_type(node: ast.ClassDef) -> bool:
    return any(name in VALUE_BASES for name in map(last_name, node.bases)) or any(
        last_name(decorator) == "dataclass" for decorator in node.decorator_list
    )


def last_name(node: ast.expr) -> str:
    """The last part of a dotted name, also when it is called."""
    if isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
