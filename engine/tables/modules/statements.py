"""Statements of a module's text, and the imports of a text that is made of some of them."""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from textwrap import indent
from typing import NamedTuple, Self, TypeGuard

from gemmtune.engine.tables.licence import SPDX

FUTURE = "from __future__ import annotations\n"
"""Statement by which annotations are not evaluated."""
IMPORTS = (ast.Import, ast.ImportFrom)
"""Kinds of imports."""
_QUOTED_TYPE = re.compile(r"[\w.]+( \| [\w.]+)*")
_WIDTH = 120  # of a line


class Import(NamedTuple):
    """Name that a module imports."""

    module: str
    name: str
    """Name in the module; empty for the module itself."""
    bound: str
    """Name in the importing module."""

    @property
    def is_ours(self) -> bool:
        """Whether the module is gemmtune's."""
        return self.module.startswith("gemmtune.")

    def relative(self) -> Self:
        """Return the import from a module of the own package, if the module is gemmtune's."""
        return self._replace(module=f".{self.module.rpartition('.')[2]}") if self.is_ours else self


@dataclass(frozen=True, eq=False)
class Statement:
    """Statement of a module's top level, with the comments before it and the docstring behind it."""

    text: str
    node: ast.stmt

    @cached_property
    def defines(self) -> set[str]:
        """Names that it defines; imports and other statements define none."""
        targets = self.node.targets if isinstance(self.node, ast.Assign) else [getattr(self.node, "target", self.node)]
        named = [each for target in targets for each in getattr(target, "elts", [target])]
        return {getattr(each, "id", getattr(each, "name", "")) for each in named} - {""}

    @property
    def texts(self) -> set[str]:
        """Texts in it."""
        constants = (node.value for node in ast.walk(self.node) if isinstance(node, ast.Constant))
        return {value for value in constants if isinstance(value, str)}

    @cached_property
    def uses(self) -> set[str]:
        """Names that it may use; a quoted type is a use, too."""
        found = set[str]()
        for node in ast.walk(self.node):
            match node:
                case ast.Name(id=name):
                    found.add(name)
                case ast.Constant(value=str(text)) if _QUOTED_TYPE.fullmatch(text):
                    found.update(re.findall(r"\w+", text))
        return found


def source(module: str) -> str:
    """Return the text of a module of gemmtune."""
    package, _, name = module.rpartition(".")
    return files(package).joinpath(f"{name}.py").read_text(encoding="utf-8")


def head_of(text: str) -> str:
    """Return the head of an exported module: licence and docstring."""
    return SPDX + "".join(text.splitlines(keepends=True)[: ast.parse(text).body[0].end_lineno])


def statements(text: str) -> Iterator[Statement]:
    """Yield the statements of a module's text behind its docstring."""
    lines, (first, *body) = text.splitlines(keepends=True), ast.parse(text).body
    end, later = first.end_lineno or 0, [*body[1:], None]
    for node, behind in zip(body, later, strict=True):
        if _is_text(node):  # belongs to the statement before it
            continue
        start, last = end, behind if _is_text(behind) else node
        end = (last.end_lineno if last is not None else None) or start
        yield Statement("".join(lines[start:end]), node)


def joined(kept: Iterable[Statement]) -> str:
    """Return the text of statements, with two empty lines around a function or class."""
    found, least = "", 0
    for each in kept:
        body = each.text.lstrip("\n")
        is_large = isinstance(each.node, ast.FunctionDef | ast.ClassDef)
        found += "\n" * max(len(each.text) - len(body), 2 * is_large, least) + body
        least = 2 * is_large
    return found


def imports(nodes: Iterable[ast.stmt], used: set[str]) -> set[Import]:
    """Return what the imports among some statements bind to used names; but for that of the future."""
    found = set()
    for node in nodes:
        if isinstance(node, IMPORTS):
            module = getattr(node, "module", "") or ""
            for each in node.names:
                name = Import(module or each.name, each.name if module else "", each.asname or each.name)
                found |= {name} if name.bound.partition(".")[0] in used and module != "__future__" else set()
    return found


def import_lines(found: Iterable[Import]) -> str:
    """Return import statements: of the standard library, of others, of the own package; modules before names."""
    groups: defaultdict[tuple[int, bool, str, str], list[str]] = defaultdict(list)
    for each in found:
        section = 2 if each.module.startswith(".") else each.module.partition(".")[0] not in sys.stdlib_module_names
        renamed = f" as {each.bound}" if each.bound != (each.name or each.module) else ""
        groups[int(section), bool(each.name), each.module, renamed].append(f"{each.name or each.module}{renamed}")
    sections: defaultdict[int, str] = defaultdict(str)
    for (section, is_from, module, _), names in sorted(groups.items()):
        names.sort(key=lambda name: (not name.isupper(), name.islower(), name))  # as linters want it
        line = f"from {module} import {', '.join(names)}" if is_from else f"import {names[0]}"
        wrapped = "".join(f"    {name},\n" for name in names)
        sections[section] += f"{line}\n" if len(line) <= _WIDTH else f"from {module} import (\n{wrapped})\n"
    return "\n".join(sections.values())


def import_blocks(found: Set[Import], for_types: Set[Import]) -> str:
    """Return import statements, and those for type checkers alone in a block of their own."""
    if not for_types:
        return import_lines(found)
    found = found | {Import("typing", "TYPE_CHECKING", "TYPE_CHECKING")}
    return f"{import_lines(found)}\nif TYPE_CHECKING:\n{indent(import_lines(for_types), '    ')}"


def is_for_types(node: ast.stmt) -> TypeGuard[ast.If]:
    """Return whether a statement is the block of imports that only type checkers read."""
    return isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"


def _is_text(node: ast.stmt | None) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
