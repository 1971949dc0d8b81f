"""Generated mutants: each small change that the usual operators make of a function's body.

Left alone are texts, log lines and traces, `check` of an invariant and the `strict` of a `zip` (only a defect reaches
them), annotations, decorators, defaults, and what stands outside of functions: settings are no decisions.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from tests.mutants.mutant import first_line

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr,
}  # fmt: skip
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
LOGS = {"debug", "info", "warning", "error", "exception", "critical", "trace"}
UNSEEN = {"__repr__", "__str__"}

Functions = ast.FunctionDef | ast.AsyncFunctionDef
TEXTS = ast.JoinedStr | ast.List | ast.Tuple | ast.ListComp
ENDS = ast.Raise | ast.Delete | ast.Continue | ast.Break | ast.AugAssign


@dataclass(frozen=True)
class Change:
    """One mutant. It has no name: file, function and both texts tell it, so that it moves with the code."""

    file: str
    function: str
    """`name`, `Class.name` or `outer.inner`."""
    before: str
    """The lines that it changes, with single spaces."""
    after: str
    first: int
    last: int
    """Lines of the statement, or of a block's head: a test that runs none of them cannot notice."""
    unit: tuple[str, int]
    """Qualified name and first line of the outermost function."""
    tree: ast.Module = field(repr=False, compare=False)
    parent: ast.AST = field(repr=False, compare=False)
    slot: tuple[str, int | None] = field(repr=False, compare=False)
    new: Any = field(repr=False, compare=False)

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.file, self.function, self.before, self.after

    def codes(self, path_of: Callable[[str], str]) -> Mapping[tuple[str, tuple[str, int]], CodeType]:
        """The code of the outermost function under the mutant; `path_of` says where a file was imported from."""
        old = self._put(self.new)
        try:
            module = compile(self.tree, path_of(self.file), "exec")
        finally:
            self._put(old)
        return {(self.file, self.unit): codes_of(module)[self.unit]}

    def _put(self, node: Any) -> Any:
        name, pos = self.slot
        if pos is None:
            old = getattr(self.parent, name)
            setattr(self.parent, name, node)
        else:
            old = getattr(self.parent, name)[pos]
            getattr(self.parent, name)[pos] = node
        return old


def codes_of(code: CodeType) -> dict[tuple[str, int], CodeType]:
    """By qualified name and first line: the code of everything that is defined in `code`."""
    found = {}
    for each in code.co_consts:
        if isinstance(each, CodeType):
            found[each.co_qualname, each.co_firstlineno] = each
            found |= codes_of(each)
    return found


def changes_of(file: str, source: str) -> list[Change]:
    """All mutants of a file, in its order."""
    return list(_Walk(file, source).module())


class _Walk:
    def __init__(self, file: str, source: str) -> None:
        self._file = file
        self._tree = ast.parse(source)
        self._lines = [line.encode() for line in source.split("\n")]
        self._names: list[str] = []
        self._unit = ("", 0)
        self._bool = False
        """Whether the function that is walked answers yes or no."""

    def module(self) -> Iterator[Change]:
        yield from self._definitions(self._tree.body)

    def _definitions(self, body: Sequence[ast.stmt]) -> Iterator[Change]:
        for node in body:
            if isinstance(node, ast.ClassDef):
                self._names.append(node.name)
                yield from self._definitions(node.body)
                self._names.pop()
            elif isinstance(node, Functions) and node.name not in UNSEEN:
                name = ".".join([*self._names, node.name])
                self._unit = (name, first_line(node))
                yield from self._function(node)

    def _function(self, node: Functions) -> Iterator[Change]:
        outside = self._bool
        self._bool = isinstance(node.returns, ast.Name) and node.returns.id == "bool"
        self._names.append(node.name)
        docstring = ast.get_docstring(node) is not None
        yield from self._block(node, "body", node.body, skip=docstring)
        self._names.pop()
        self._bool = outside

    def _block(self, parent: ast.AST, name: str, body: Sequence[ast.stmt], *, skip: bool = False) -> Iterator[Change]:
        for pos, node in enumerate(body):
            if not (skip and pos == 0):
                yield from self._statement(parent, (name, pos), node)

    def _statement(self, parent: ast.AST, slot: tuple[str, int | None], node: ast.stmt) -> Iterator[Change]:
        if isinstance(node, Functions):
            yield from self._function(node)
            return
        self._span = _head(node)
        alone = (
            isinstance(parent, ast.If) and len(parent.body) == 1 and not parent.orelse
        )  # its condition is made false
        begins = self._names[-1] == "__init__" and isinstance(node, ast.Assign | ast.AnnAssign)
        if _goes(node) and not alone and not begins:
            yield self._change(parent, slot, node, ast.Pass())
        if isinstance(node, ast.Raise | ast.ClassDef) or (isinstance(node, ast.Expr) and _told(node.value)):
            return
        if isinstance(node, ast.AugAssign) and type(node.op) in ARITHMETIC and not isinstance(node.value, TEXTS):
            yield self._change(
                parent, slot, node, ast.AugAssign(node.target, ARITHMETIC[type(node.op)](), node.value), node
            )
        for name, child in ast.iter_fields(node):
            if name in ("body", "orelse", "finalbody") and isinstance(child, list):
                yield from self._block(node, name, child)
            elif name == "handlers":
                for handler in child:
                    yield from self._handler(handler)
            elif name == "cases":
                for case in child:
                    yield from self._block(case, "body", case.body)
            elif name in ("targets", "target", "annotation"):
                continue
            else:
                self._span = _head(node)
                yield from self._field(node, name, child)

    def _handler(self, node: ast.ExceptHandler) -> Iterator[Change]:
        if not isinstance(node.body[0], ast.Raise):
            self._span = (node.body[0].lineno, node.body[0].lineno)
            yield self._change(node, ("body", 0), node.body[0], ast.Raise())
        yield from self._block(node, "body", node.body)

    def _field(self, parent: ast.AST, name: str, child: Any) -> Iterator[Change]:
        if isinstance(child, ast.expr):
            yield from self._expression(parent, (name, None), child)
        elif isinstance(child, list):
            for pos, each in enumerate(child):
                if isinstance(each, ast.expr):
                    yield from self._expression(parent, (name, pos), each)
                elif isinstance(each, ast.comprehension | ast.keyword | ast.withitem):
                    for inner, value in ast.iter_fields(each):
                        if inner not in ("target", "optional_vars"):
                            yield from self._field(each, inner, value)

    def _expression(self, parent: ast.AST, slot: tuple[str, int | None], node: ast.expr) -> Iterator[Change]:
        if isinstance(node, ast.JoinedStr) or _told(node):
            return
        for new in self._variants(parent, slot[0], node):
            yield self._change(parent, slot, node, new)
        if isinstance(node, ast.Lambda):
            yield from self._expression(node, ("body", None), node.body)
            return
        for name, child in ast.iter_fields(node):
            if name == "keywords":
                child = [each for each in child if each.arg != "strict"]
            yield from self._field(node, name, child)

    def _variants(self, parent: ast.AST, name: str, node: ast.expr) -> Iterator[ast.expr]:
        """What stands in place of an expression. Whatever decides is made true and false, so that its opposite, which
        is noticed more easily, is left out."""
        answers = self._bool and isinstance(parent, ast.Return) and not isinstance(node, ast.Constant)
        decides = (name == "test" and not isinstance(parent, ast.Assert)) or name == "ifs" or answers
        if decides and not (isinstance(node, ast.Name) and node.id == "TYPE_CHECKING"):
            if not isinstance(parent, ast.While):
                yield ast.Constant(True)
            if not isinstance(node, ast.Constant):
                yield ast.Constant(False)
        elif isinstance(parent, ast.Return) and not isinstance(node, ast.Constant):
            yield ast.Constant(None)
        match node:
            case ast.Compare(left, ops, comparators):
                for pos, op in enumerate(ops):
                    swap = COMPARISONS.get(type(op))
                    if swap is None and not decides and not isinstance(parent, ast.BoolOp):
                        swap = OPPOSITES[type(op)]
                    if swap is not None:
                        yield ast.Compare(left, [*ops[:pos], swap(), *ops[pos + 1 :]], comparators)
            case ast.BoolOp(op, values):
                for pos in range(len(values)):
                    rest = [*values[:pos], *values[pos + 1 :]]
                    yield rest[0] if len(rest) == 1 else ast.BoolOp(op, rest)
            case ast.UnaryOp(ast.Not(), operand) if not decides and not isinstance(parent, ast.BoolOp):
                yield operand
            case ast.UnaryOp(ast.USub(), operand):
                yield operand
            case ast.BinOp(left, op, right) if not _is_text(left) and not _is_text(right) and type(op) in ARITHMETIC:
                yield ast.BinOp(left, ARITHMETIC[type(op)](), right)
            case ast.Constant(bool() as value):
                if not decides:
                    yield ast.Constant(not value)
            case ast.Constant(int() as value):
                yield ast.Constant(value + 1)
                if value == 1:
                    yield ast.Constant(0)
            case ast.Constant(float() as value):
                yield ast.Constant(value + 1)
            case ast.Call(ast.Name(called), args, keywords) if called in CALLS:
                yield ast.Call(ast.Name(CALLS[called], ast.Load()), args, keywords)

    def _change(
        self, parent: ast.AST, slot: tuple[str, int | None], old: ast.AST, new: ast.AST, place: ast.AST | None = None
    ) -> Change:
        new = copy.copy(new)  # it may be a part of the old one, which stays where it is
        ast.copy_location(new, old)
        ast.fix_missing_locations(new)
        row, column = old.lineno - 1, old.col_offset  # type: ignore[attr-defined]
        end_row, end_column = old.end_lineno - 1, old.end_col_offset  # type: ignore[attr-defined]
        head, tail = self._lines[row][:column].decode(), self._lines[end_row][end_column:].decode()
        before = b"\n".join(self._lines[row : end_row + 1]).decode()
        text = ast.unparse(new)
        if isinstance(new, ast.BoolOp | ast.IfExp | ast.Compare | ast.BinOp) and type(new) is not type(old):
            text = f"({text})"
        first, last = self._span
        return Change(
            self._file, ".".join(self._names), _spaced(before), _spaced(head + text + tail), first, last, self._unit,
            self._tree, parent, slot, new,
        )  # fmt: skip


def _spaced(text: str) -> str:
    return " ".join(text.split())


def _head(node: ast.stmt) -> tuple[int, int]:
    """Lines of a statement, without those of the blocks in it."""
    inner = [getattr(node, name, None) for name in ("test", "iter", "subject")]
    inner += [item.context_expr for item in getattr(node, "items", ())]
    ends = [each.end_lineno or node.lineno for each in inner if isinstance(each, ast.expr)]
    if ends or isinstance(node, ast.Try):
        return node.lineno, max([node.lineno, *ends])
    return node.lineno, node.end_lineno or node.lineno


def _goes(node: ast.stmt) -> bool:
    """Whether a mutant leaves the statement out."""
    if isinstance(node, ast.Expr):
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        return isinstance(call, ast.Call | ast.Yield | ast.YieldFrom) and not _told(call)
    if isinstance(node, ast.Assign):
        return all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets)
    if isinstance(node, ast.AnnAssign):
        return isinstance(node.target, ast.Attribute) and node.value is not None
    return isinstance(node, ENDS) or (isinstance(node, ast.Return) and node.value is None)


def _told(node: ast.expr) -> bool:
    """Whether it is a line of a log, a trace, or the check of an invariant."""
    match node:
        case ast.Call(ast.Name("check")):
            return True
        case ast.Call(ast.Attribute(_, name)):
            return name in LOGS
    return False


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, TEXTS) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))
