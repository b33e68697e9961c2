"""Text of one module that runs without gemmtune, made of the modules that it imports."""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from textwrap import indent
from typing import NamedTuple, TypeGuard

from gemmtune.engine.tables.licence import SPDX

_FUTURE = "from __future__ import annotations\n"
_IMPORTS = (ast.Import, ast.ImportFrom)
_QUOTED_TYPE = re.compile(r"[\w.]+( \| [\w.]+)*")
_WIDTH = 120  # of a line


@cache
def standalone(module: str, *shipped: tuple[str, str], resolver: str = "") -> str:
    """Return a module's text in which all that it reaches of gemmtune stands in the place of imports from it.

    What nothing reaches is left out. Each import stands once, at the top, below the licence and the docstring.

    Args:
        module: full name of a module, whose imports from gemmtune stand at its top.
        shipped: full name and exported name of each module beside it; their imports are renamed.
        resolver: full name of a function that takes the place of imports from torch's modules, whose names come and
            go: of a module's name and a name in it, it returns what stands for that name.
    """
    source, _, resolve = resolver.rpartition(".")
    seen: set[str] = set()
    first = list(_statements(source, {}, seen)) if source else []
    every = [*first, *_statements(module, dict(shipped), seen)]
    *_, public = (each for each in every if "__all__" in each.defines)
    kept = _reached([each for each in every if "__all__" not in each.defines], {resolve, *public.texts})
    used = set[str]().union(*(each.uses for each in kept))
    imports = _imports((each.node for each in every), used | {"TYPE_CHECKING"})
    for_types = _imports((line for each in every if _is_for_types(each.node) for line in each.node.body), used)
    resolved = {found for found in imports if source and found.module.startswith("torch.")}
    head = _import_lines(imports - resolved)
    if for_types - imports:
        head += "\nif TYPE_CHECKING:\n" + indent(_import_lines(for_types - imports), "    ")
    names = "".join(f'{each.bound} = {resolve}("{each.module}", "{each.name}")\n' for each in sorted(resolved))
    before, after = (_joined(each for each in kept if (each in first) is wanted) for wanted in (True, False))
    text = _source(module)
    docstring = "".join(text.splitlines(keepends=True)[: ast.parse(text).body[0].end_lineno])
    parts = (SPDX + docstring, _FUTURE, head, public.text.strip("\n") + "\n\n", before, names, after)
    return "\n".join(part for part in parts if part)


class _Import(NamedTuple):
    """Name that a module imports."""

    module: str
    name: str
    """Name in the module; empty for the module itself."""
    bound: str
    """Name in the importing module."""


@dataclass(frozen=True, eq=False)
class _Statement:
    """Statement of a module's top level, with the comments before it and the docstring behind it."""

    text: str
    node: ast.stmt

    @property
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


def _statements(module: str, shipped: Mapping[str, str], seen: set[str]) -> Iterator[_Statement]:
    """Yield the statements of a module behind its docstring, and of the modules that it imports before its own."""
    text = _source(module)
    lines, (docstring, *body) = text.splitlines(keepends=True), ast.parse(text).body
    seen.add(module)
    end, later = docstring.end_lineno or 0, [*body[1:], None]
    for node, behind in zip(body, later, strict=True):
        if _is_text(node):  # belongs to the statement before it
            continue
        start, last = end, behind if _is_text(behind) else node
        end = (last.end_lineno if last is not None else None) or start
        if not (isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("gemmtune.")):
            yield _Statement("".join(lines[start:end]), node)
        elif node.module in shipped:
            yield _Statement("", ast.ImportFrom(shipped[node.module], node.names, 0))
        elif node.module not in seen:
            yield from _statements(node.module, shipped, seen)


def _reached(statements: Sequence[_Statement], wanted: set[str]) -> list[_Statement]:
    """Return the statements that define the wanted names, what these use, and what runs without a name."""
    others = [each for each in statements if not isinstance(each.node, _IMPORTS) and not _is_for_types(each.node)]
    defined, uses = [each.defines for each in others], [each.uses for each in others]
    kept: set[int] = set()
    while True:
        found = {at for at, names in enumerate(defined) if not names or names & wanted}
        if found == kept:
            return [others[at] for at in sorted(kept)]
        kept, wanted = found, wanted.union(*(uses[at] for at in found))


def _joined(statements: Iterable[_Statement]) -> str:
    """Return the text of statements, with two empty lines around a function or class."""
    found, least = "", 0
    for each in statements:
        body = each.text.lstrip("\n")
        is_large = isinstance(each.node, ast.FunctionDef | ast.ClassDef)
        found += "\n" * max(len(each.text) - len(body), 2 * is_large, least) + body
        least = 2 * is_large
    return found.lstrip("\n")


def _imports(nodes: Iterable[ast.stmt], used: set[str]) -> set[_Import]:
    """Return what the imports among some statements bind to used names; but for that of the future."""
    found = set()
    for node in nodes:
        if isinstance(node, _IMPORTS):
            module = getattr(node, "module", "") or ""
            for each in node.names:
                name = _Import(module or each.name, each.name if module else "", each.asname or each.name)
                found |= {name} if name.bound.partition(".")[0] in used and module != "__future__" else set()
    return found


def _import_lines(imports: Iterable[_Import]) -> str:
    """Return import statements: those of the standard library, those of others; modules before names."""
    groups: defaultdict[tuple[bool, bool, str, str], list[str]] = defaultdict(list)
    for each in imports:
        is_other = each.module.partition(".")[0] not in sys.stdlib_module_names
        renamed = f" as {each.bound}" if each.bound != (each.name or each.module) else ""
        groups[is_other, bool(each.name), each.module, renamed].append(f"{each.name or each.module}{renamed}")
    found = {False: "", True: ""}
    for (is_other, is_from, module, _), names in sorted(groups.items()):
        names.sort(key=lambda name: (not name.isupper(), name.islower(), name))  # as linters want it
        line = f"from {module} import {', '.join(names)}" if is_from else f"import {names[0]}"
        wrapped = "".join(f"    {name},\n" for name in names)
        found[is_other] += f"{line}\n" if len(line) <= _WIDTH else f"from {module} import (\n{wrapped})\n"
    return "\n".join(block for block in found.values() if block)


def _is_text(node: ast.stmt | None) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_for_types(node: ast.stmt) -> TypeGuard[ast.If]:
    return isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"


def _source(module: str) -> str:
    package, _, name = module.rpartition(".")
    return files(package).joinpath(f"{name}.py").read_text(encoding="utf-8")
