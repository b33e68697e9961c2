"""Find the mutations of a Python file: each is one small fault, and changes the text of one expression or statement."""

from __future__ import annotations

import ast
import copy
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

OTHER = {ast.Eq: ast.NotEq, ast.Lt: ast.GtE, ast.Gt: ast.LtE, ast.In: ast.NotIn, ast.Is: ast.IsNot}
OTHER |= {new: old for old, new in OTHER.items()}
BOUNDARY = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}
ARITHMETIC |= {ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr}
LOGGING = ("log.", "logger.", "logging.", "warnings.", "print(")
STYLE = {"alpha", "capsize", "dpi", "fontsize", "indent", "labelpad", "linewidth", "lw", "markersize", "ms", "pad"}
STYLE |= {"rotation", "shrinkA", "shrinkB", "zorder"}
"""Keywords that say how a picture or a file looks."""
TIDY = ("gc.collect()", "torch.cuda.empty_cache()")
"""Calls that free memory, and change no result."""
EMPTY = {ast.List: "[]", ast.ListComp: "[]", ast.Dict: "{}", ast.DictComp: "{}", ast.Tuple: "()", ast.SetComp: "set()"}


@dataclass(frozen=True)
class Mutation:
    """One fault: `text` in place of the bytes from `start` to `end` of the file."""

    line: int
    kind: str
    start: int
    end: int
    text: str

    def applied(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]


def mutations(source: bytes) -> list[Mutation]:
    """All mutations of a file, in the order of its lines.

    Left out: docstrings and other texts, annotations, imports, decorators, logging, assertions, `__all__`; and what
    nobody could tell from the original:

    - numbers that style a picture or a file's layout: keywords of STYLE, such as `fontsize=8` and `indent=2`;
    - one more in a private constant that limits the characters or names of a message: `_SHOWN`, `_MOST_NAMED`;
    - a doubled patience: private constants `_..._SECONDS` from 0.1 s on, and defaults of parameters `..._seconds`;
    - exchanged arguments of `min`, `max` and `gcd`, and dropped calls of `gc.collect` and `empty_cache`.
    """
    starts = [0, *itertools.accumulate(len(line) for line in source.splitlines(keepends=True))]
    found = []
    old: Any
    for node in _executable(ast.parse(source)):
        for kind, old, text in _faults(node):
            start, end = starts[old.lineno - 1] + old.col_offset, starts[old.end_lineno - 1] + old.end_col_offset
            found.append(Mutation(old.lineno, kind, start, end, text))
    return sorted(set(found), key=lambda each: (each.line, each.start, each.end, each.kind, each.text))


def _executable(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below `node` that a mutation may change."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params", "bases"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _left_out(child) and not _is_patience(node, child):
                yield child
                yield from _executable(child)


def _left_out(node: ast.AST) -> bool:
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Assert() | ast.JoinedStr() | ast.Global() | ast.Nonlocal():
            return True
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.Assign(targets=[ast.Name(id="__all__")]):
            return True
        case ast.keyword(arg="strict"):
            return True  # only a fault elsewhere makes two lengths differ
        case ast.keyword(arg=name, value=ast.Constant()) if name in STYLE:
            return True
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int())) if name.startswith("_"):
            return name.endswith(("_SHOWN", "_NAMED"))
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=float(number))) if name.startswith("_"):
            return name.endswith("_SECONDS") and number >= 0.1
    return isinstance(node, ast.Expr) and ast.unparse(node).startswith((*LOGGING, *TIDY))


def _is_patience(node: ast.AST, child: ast.AST) -> bool:
    """Return whether `child` is the default of a parameter `..._seconds` among the parameters `node`."""
    if not isinstance(node, ast.arguments) or not isinstance(child, ast.Constant):
        return False
    named = [*zip(reversed([*node.posonlyargs, *node.args]), reversed(node.defaults), strict=False)]
    named += zip(node.kwonlyargs, node.kw_defaults, strict=True)
    return any(default is child and each.arg.endswith("_seconds") for each, default in named)


def _faults(node: ast.AST) -> Iterator[tuple[str, ast.AST, str]]:
    """Kinds of the node's mutations, the node that each replaces, and its new text."""
    match node:
        case ast.Compare():
            for number, operator in enumerate(node.ops):
                for kind, table in (("comparison", OTHER), ("boundary", BOUNDARY)):
                    if type(operator) in table:
                        ops = [*node.ops[:number], table[type(operator)](), *node.ops[number + 1 :]]
                        yield kind, node, _text(node, ops=ops)
        case ast.Constant(value=bool()):
            yield "boolean", node, str(not node.value)
        case ast.Constant(value=int()):
            yield "number", node, str(node.value + 1)
        case ast.Constant(value=float()):
            yield "number", node, repr(node.value * 2 or 1.0)
        case ast.BoolOp():
            yield "and/or", node, _text(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
            yield "first of two", node, f"({ast.unparse(node.values[0])})"
        case ast.UnaryOp(op=ast.Not()):
            yield "boolean", node, f"({ast.unparse(node.operand)})"
        case ast.BinOp() if type(node.op) in ARITHMETIC and not _is_text(node.left) and not _is_text(node.right):
            yield "arithmetic", node, _text(node, op=ARITHMETIC[type(node.op)]())
        case ast.AugAssign() if type(node.op) in ARITHMETIC:
            yield "arithmetic", node, ast.unparse(_with(node, op=ARITHMETIC[type(node.op)]()))
        case ast.Raise():
            yield "dropped raise", node, "pass"
        case ast.Expr(value=ast.Call()):
            yield "deleted call", node, "pass"
        case ast.Return() if node.value is not None and ast.unparse(node.value) != "None":
            yield "return empty", node, f"return {EMPTY.get(type(node.value), 'None')}"
        case ast.ExceptHandler() if isinstance(node.type, ast.Tuple):
            for name in node.type.elts:
                yield (
                    "except",
                    node.type,
                    f"({''.join(f'{ast.unparse(e)}, ' for e in node.type.elts if e is not name)})",
                )
        case ast.ExceptHandler() if node.type is not None:
            yield "except", node.type, "()"
        case ast.comprehension():
            for each in node.ifs:
                yield "filter dropped", each, "True"
        case ast.Call():
            yield from _faults_of_call(node)
    if isinstance(node, ast.If | ast.While | ast.IfExp) and not isinstance(node.test, ast.UnaryOp | ast.Constant):
        yield "boolean", node.test, f"(not ({ast.unparse(node.test)}))"
    if isinstance(node, ast.IfExp):
        yield "first of two", node, f"({ast.unparse(node.body)})"
    if (
        isinstance(node, ast.If)
        and not node.orelse
        and isinstance(node.body[-1], ast.Return | ast.Continue | ast.Break)
    ):
        yield "dropped guard", node, "pass"
    if isinstance(node, ast.Assign | ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if all(isinstance(target, ast.Attribute | ast.Subscript) for target in targets):
            yield "deleted assignment", node, "pass"


def _faults_of_call(node: ast.Call) -> Iterator[tuple[str, ast.AST, str]]:
    match node.func:
        case ast.Name(id="min" | "max" as name):
            yield "min/max", node.func, "max" if name == "min" else "min"
    first, second = [*node.args[:2], None, None][:2]
    if ast.unparse(node.func) in ("min", "max", "gcd", "math.gcd"):
        return
    if second is not None and not any(isinstance(each, ast.Starred) for each in (first, second)):
        yield "swap args", node, _text(node, args=[second, first, *node.args[2:]])


def _text(node: ast.AST, **fields: object) -> str:
    return f"({ast.unparse(_with(node, **fields))})"


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
