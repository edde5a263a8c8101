"""The changes: every single one that can be made to a module, found in its syntax tree."""

from __future__ import annotations

import ast
import re
from collections import Counter
from typing import Final, NamedTuple

PACKAGES: Final = ("replication", "log", "transactions", "groups", "controller", "broker", "api")
"""Those that are changed."""
MORE_PACKAGES: Final = ("security", "records", "metadata", "quotas", "authorization", "wire")
"""Those that are changed if they are named."""
_COMPARISONS: Final[dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_LOGGERS: Final = ("logger", "logging")
_LARGE: Final = 100
"""A number from here on is doubled: no caller can distinguish a duration, size or limit from the next one."""


Identity = tuple[str, str, str, str, str, int]
"""Path, scope, line's text, what is changed, to what, and which of several equal changes."""


class Mutant(NamedTuple):
    """One change of one module: the bytes from `start` to `end` become `text`."""

    path: str
    """Of the module, below the repository's root."""
    line: int
    """Where the change begins, from 1."""
    start: int
    end: int
    before: str
    text: str
    context: str
    """The line where the change begins, without its indentation."""
    scope: str
    """The function or class that contains the change: `Log.append`, or nothing."""
    runs_at_import: bool
    """Whether the change is outside functions: then any test of the module may notice it."""
    number: int = 0
    """Which of the equal changes of equal lines in this scope it is, in the order of the text."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {_one_line(self.before)}  ->  {_one_line(self.text)}"

    @property
    def identity(self) -> Identity:
        """What names the change, and no other one, when lines around it were added or removed."""
        return *self._kind, self.number

    @property
    def constant(self) -> str:
        """The constant of the module whose definition is changed, or nothing."""
        name = re.match(r"([A-Z_][A-Z0-9_]*)(:[^=]+)? = ", self.context)
        return name[1] if name and not self.scope else ""

    @property
    def _kind(self) -> tuple[str, str, str, str, str]:
        return self.path, self.scope, self.context, _one_line(self.before), _one_line(self.text)

    def numbered(self, seen: Counter[tuple[str, ...]]) -> Mutant:
        """The same mutant with its number after those that were seen, which now include it."""
        number = seen[self._kind]
        seen[self._kind] += 1
        return self._replace(number=number)

    def apply(self, source: bytes) -> bytes:
        """The module with this change."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def mutants_of(path: str, source: bytes) -> list[Mutant]:
    """Every change of the module, in the order of its text. Messages, annotations, decorators and logging stay."""
    finder = _Finder(path, source)
    finder.visit(ast.parse(source))
    seen: Counter[tuple[str, ...]] = Counter()
    ordered = sorted(set(finder.found), key=lambda mutant: (mutant.start, mutant.end, mutant.text))
    return [mutant.numbered(seen) for mutant in ordered]


class _Finder(ast.NodeVisitor):
    """Walks a module and collects its mutants."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path = path
        self.source = source
        self.found: list[Mutant] = []
        self._scope: list[str] = []
        self._functions = 0
        self._line_starts = [0]
        for line in source.splitlines(keepends=True):
            self._line_starts.append(self._line_starts[-1] + len(line))

    def _add(self, node: ast.expr | ast.stmt, text: str) -> None:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._line_starts[node.lineno - 1] + node.col_offset
        end = self._line_starts[node.end_lineno - 1] + node.end_col_offset
        before = self.source[start:end].decode()
        line = self.source[self._line_starts[node.lineno - 1] : self._line_starts[node.lineno]].decode()
        scope = ".".join(self._scope)
        at_import = not self._functions
        self.found.append(Mutant(self.path, node.lineno, start, end, before, text, line.strip(), scope, at_import))

    def _replace(self, node: ast.expr, other: ast.expr) -> None:
        self._add(node, f"({ast.unparse(ast.fix_missing_locations(other))})")

    # Statements

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return  # a docstring
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(value, ast.Call):
            if _is_logging(value):
                return
            self._add(node, "pass")
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        self._negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self._add(node.test, "False")
        if not (isinstance(node.test, ast.Constant) and node.test.value is True):
            self.visit(node.test)
        for statement in (*node.body, *node.orelse):
            self.visit(statement)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._negate(test)
        self.generic_visit(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._add(node, "break")

    def visit_Break(self, node: ast.Break) -> None:
        self._add(node, "continue")

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        other = _ARITHMETIC.get(type(node.op))
        if other is not None:
            changed = ast.AugAssign(node.target, other(), node.value)
            self._add(node, ast.unparse(ast.fix_missing_locations(changed)))
        self.visit(node.value)

    # Expressions

    def _negate(self, test: ast.expr) -> None:
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return  # visit_UnaryOp does it
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            return  # visit_Compare does it
        self._replace(test, ast.UnaryOp(ast.Not(), test))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.USub):
            self._replace(node, node.operand)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for index, op in enumerate(node.ops):
            for other in _COMPARISONS[type(op)]:
                ops = [*node.ops[:index], other(), *node.ops[index + 1 :]]
                self._replace(node, ast.Compare(node.left, ops, node.comparators))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._replace(node, ast.BoolOp(other, node.values))
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        other = _ARITHMETIC.get(type(node.op))
        if other is not None and not _is_text(node.left) and not _is_text(node.right) and not _is_type(node):
            self._replace(node, ast.BinOp(node.left, other(), node.right))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add(node, str(not node.value))
        elif isinstance(node.value, int | float):
            self._add(node, str(node.value + 1 if node.value < _LARGE else node.value * 2))

    def visit_Call(self, node: ast.Call) -> None:
        if _is_logging(node) or _is_cast(node):
            return
        for part in (node.func, *node.args, *node.keywords):
            if not _is_assertion(node, part):
                self.visit(part)

    # Left alone

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Messages; and their parts have no positions of their own before Python 3.12."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """States what is true anyway."""

    def visit_Raise(self, node: ast.Raise) -> None:
        """The kind of an error is a name; its words are not tested."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_arguments(self, node: ast.arguments) -> None:
        for default in (*node.defaults, *filter(None, node.kw_defaults)):
            self.visit(default)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._inside(node.name, node.body)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._function(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name in ("__repr__", "__str__") or _is_declaration(node):
            return
        self.visit(node.args)
        self._functions += 1
        self._inside(node.name, node.body)
        self._functions -= 1

    def _inside(self, name: str, body: list[ast.stmt]) -> None:
        self._scope.append(name)
        for statement in body:
            self.visit(statement)
        self._scope.pop()


def _is_declaration(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """A method of a protocol: documentation and an ellipsis. Neither it nor its defaults run."""
    last = node.body[-1]
    return isinstance(last, ast.Expr) and isinstance(last.value, ast.Constant) and last.value.value is ...


def _is_logging(call: ast.Call) -> bool:
    function = call.func
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name | ast.Attribute)
        and ast.unparse(function.value).rpartition(".")[2].lstrip("_") in _LOGGERS
    )


def _is_assertion(call: ast.Call, part: ast.AST) -> bool:
    """`strict=True` of zip: like an assertion, it states that both have one length."""
    is_zip = isinstance(call.func, ast.Name) and call.func.id == "zip"
    return is_zip and isinstance(part, ast.keyword) and part.arg == "strict"


def _is_cast(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id in ("cast", "TypeVar", "NewType")


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def _is_type(node: ast.BinOp) -> bool:
    """`A | B` and `A | None`: a union of types, which changes nothing when it runs."""
    return isinstance(node.op, ast.BitOr) and all(
        isinstance(side, ast.BinOp)
        or (isinstance(side, ast.Constant) and side.value is None)
        or (isinstance(side, ast.Name) and (side.id[0].isupper() or side.id in dir(__builtins__)))
        for side in (node.left, node.right)
    )
