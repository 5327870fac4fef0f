"""Makes small mutations of source text: of Python by its syntax tree, of SQL by its words.

A mutation that cannot change behaviour is left out where that is easy to see: texts, messages of
errors, log lines, annotations.
"""

import ast
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

PYTHON, SQL = ".py", ".sql"


class Mutation(NamedTuple):
    """One change: the bytes from ``start`` to ``end`` are replaced."""

    start: int
    end: int
    replacement: bytes

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.replacement + source[self.end :]

    def line(self, source: bytes) -> int:
        return source.count(b"\n", 0, self.start) + 1

    def describe(self, source: bytes) -> tuple[str, str]:
        """The changed lines before and after, without what surrounds them."""
        first = source.rfind(b"\n", 0, self.start) + 1
        last = source.find(b"\n", self.end)
        last = len(source) if last < 0 else last
        before = source[first:last]
        after = source[first : self.start] + self.replacement + source[self.end : last]
        return _shorten(before), _shorten(after)


def find_mutations(source: bytes, suffix: str) -> list[Mutation]:
    """All mutations of a file, in the order of their places."""
    found = _PythonMutator(source).found if suffix == PYTHON else [*_mutate_sql(source)]
    return sorted(set(found))


def _shorten(text: bytes) -> str:
    return " ".join(text.decode().split())


# ---------------------------------------------------------------- Python

_COMPARISONS: Final = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
_OPERATORS: Final = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
}
_BOOLEANS: Final = {ast.And: ("and", "or"), ast.Or: ("or", "and")}

_TEXT_KEYWORDS: Final = frozenset({"fix", "why", "help", "hint", "metavar", "epilog", "stacklevel"})
_LOGGERS: Final = re.compile(r"_\w*log|log|_log_\w+|log_\w+|warnings|click\.echo")
_DECLARED: Final = frozenset({"Protocol", "TypedDict", "NewType", "TypeVar", "ParamSpec"})


class _PythonMutator(ast.NodeVisitor):
    def __init__(self, source: bytes) -> None:
        self.found: list[Mutation] = []
        self._source = source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self.visit(ast.parse(source))

    # ------------------------------------------------------------ places

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None, node
        assert node.end_col_offset is not None, node
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def _replace(self, node: ast.expr | ast.stmt, text: str) -> None:
        self.found.append(Mutation(*self._span(node), text.encode()))

    def _replace_between(
        self, left: ast.expr, right: ast.expr, operator: tuple[str, str] | None
    ) -> None:
        """Replace the operator between two expressions: only brackets and space are beside it."""
        if operator is None:
            return
        low, high = self._span(left)[1], self._span(right)[0]
        pattern = rf"(?<![\w<>=!]){re.escape(operator[0])}(?![\w<>=])".replace(r"\ ", r"\s+")
        match = re.search(pattern.encode(), self._source[low:high])
        if match is not None:
            span = low + match.start(), low + match.end()
            self.found.append(Mutation(*span, operator[1].encode()))

    # ------------------------------------------------------------ what is left out

    def visit_Raise(self, node: ast.Raise) -> None:
        self._delete(node)  # what it raises is mostly text

    def visit_Assert(self, node: ast.Assert) -> None:
        """Leave it: it states what other code guarantees."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leave it: a text."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            if not isinstance(node.target, ast.Name):
                self._delete(node)
            self.visit(node.value)

    def visit_arg(self, node: ast.arg) -> None:
        """Leave it: an annotation."""

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg not in _TEXT_KEYWORDS:
            self.visit(node.value)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if {ast.unparse(base).partition("[")[0] for base in node.bases}.isdisjoint(_DECLARED):
            for statement in node.body:
                self.visit(statement)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        decorators = {ast.unparse(each) for each in node.decorator_list}
        if "overload" in decorators or node.name in {"__repr__", "__str__"}:
            return
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                self.visit(default)
        for statement in node.body:
            self.visit(statement)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = ast.unparse(node.func)
        if name in _DECLARED or name in {"cast", "TypeAlias"} or _is_log(name):
            return
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        # Mapping[str, int] is a type.
        if not (isinstance(node.value, ast.Name) and node.value.id[:1].isupper()):
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        names = [ast.unparse(target) for target in node.targets]
        if names[0] in {"__all__", "__slots__"}:
            return
        if all(isinstance(each, ast.Attribute | ast.Subscript) for each in node.targets):
            self._delete(node)
        self.visit(node.value)

    # ------------------------------------------------------------ what is changed

    def _delete(self, node: ast.stmt) -> None:
        self._replace(node, "pass")

    def visit_Expr(self, node: ast.Expr) -> None:
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(value, ast.Call) and not _is_log(ast.unparse(value.func)):
            self._delete(node)
        if not isinstance(value, ast.Constant):
            self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._delete(node)
        self.visit(node.value)

    def visit_Delete(self, node: ast.Delete) -> None:
        self._delete(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace(node, "break")

    def visit_Break(self, node: ast.Break) -> None:
        self._replace(node, "continue")

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is None:
            self._delete(node)
            return
        if not (isinstance(node.value, ast.Constant) and node.value.value in {None, False}):
            self._replace(node.value, "None")
        self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) == "TYPE_CHECKING":
            return
        self._negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for condition in node.ifs:
            self._negate(condition)
        self.generic_visit(node)

    def _negate(self, test: ast.expr) -> None:
        if isinstance(test, ast.Name | ast.Attribute | ast.Call | ast.BoolOp):
            start, end = self._span(test)
            text = b"not (" + self._source[start:end] + b")"
            self.found.append(Mutation(start, end, text))

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for place, operator in enumerate(node.ops):
            self._replace_between(
                operands[place], operands[place + 1], _COMPARISONS.get(type(operator))
            )
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._replace_between(left, right, _BOOLEANS[type(node.op)])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if not (_is_text(node.left) or _is_text(node.right)):
            self._replace_between(node.left, node.right, _OPERATORS.get(type(node.op)))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            start, end = self._span(node.operand)
            self._replace(node, self._source[start:end].decode())
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace(node, str(not node.value))
        elif isinstance(node.value, int):
            self._replace(node, str(node.value + 1))
        elif isinstance(node.value, float):
            self._replace(node, str(2 * node.value + 1))


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _is_log(name: str) -> bool:
    first, _, _ = name.removeprefix("self.").partition(".")
    return _LOGGERS.fullmatch(first) is not None or _LOGGERS.fullmatch(name) is not None


# ---------------------------------------------------------------- SQL

_SQL: Final = [
    (rb"(?<=\s)<=(?=\s)", b"<"),
    (rb"(?<=\s)>=(?=\s)", b">"),
    (rb"(?<=\s)<(?=\s)", b"<="),
    (rb"(?<=\s)>(?=\s)", b">="),
    (rb"(?<=\s)<>(?=\s)", b"="),
    (rb"\bIS NOT NULL\b", b"IS NULL"),
    (rb"\bIS NULL\b", b"IS NOT NULL"),
    (rb"\bNOT EXISTS\b", b"EXISTS"),
    (rb"(?<!NOT )\bEXISTS\b", b"NOT EXISTS"),
    (rb"\bAND\b", b"OR"),
    (rb"\bOR\b(?! REPLACE)", b"AND"),
    (rb"\bmin\(", b"max("),
    (rb"\bmax\(", b"min("),
    (rb"\bDESC\b", b"ASC"),
    (rb" SKIP LOCKED\b", b""),
    (rb"(?<=[\w)] )\+(?= )", b"-"),
    (rb"(?<=[\w)] )-(?= )", b"+"),
]
_SQL_CONDITION: Final = re.compile(rb"^\s*(?:WHERE|AND|OR|ON|WHEN)\b.* (=) ", re.MULTILINE)
_SQL_LINE: Final = re.compile(rb"^ *(?:AND|OR) [^()\n]*(?:\([^()\n]*\)[^()\n]*)*$", re.MULTILINE)
_SQL_ORDER: Final = re.compile(rb"\bORDER BY [\w.]+(?: COLLATE \"C\")?(?=[,\s);])(?! DESC| ASC)")
_SQL_NUMBER: Final = re.compile(rb"(?<![\w:.'?{])\d+(?![\w.'}])")
_SQL_COMMENT: Final = re.compile(rb"--[^\n]*")
_BETWEEN: Final = re.compile(rb"\bBETWEEN\s+\S+\s+$")


def _mutate_sql(source: bytes) -> Iterator[Mutation]:
    # Comments keep their length, so that places stay the same.
    text = _SQL_COMMENT.sub(lambda match: b" " * len(match[0]), source)
    for pattern, replacement in _SQL:
        for match in re.finditer(pattern, text):
            if not _BETWEEN.search(text[: match.start()]):
                yield Mutation(match.start(), match.end(), replacement)
    for match in _SQL_CONDITION.finditer(text):
        yield Mutation(*match.span(1), b"<>")
    for match in _SQL_LINE.finditer(text):
        yield Mutation(*match.span(), b"")
    for match in _SQL_ORDER.finditer(text):
        yield Mutation(match.end(), match.end(), b" DESC")
    for match in _SQL_NUMBER.finditer(text):
        yield Mutation(*match.span(), str(int(match[0]) + 1).encode())
