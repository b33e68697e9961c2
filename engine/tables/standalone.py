"""Modules of gemmtune as files that run without it: one file, or a package of the modules that one module reaches."""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cache, cached_property
from graphlib import TopologicalSorter
from importlib.resources import files
from itertools import groupby
from textwrap import indent
from typing import NamedTuple, Self, TypeGuard

from gemmtune.engine.tables.licence import SPDX

_FUTURE = "from __future__ import annotations\n"
_IMPORTS = (ast.Import, ast.ImportFrom)
_QUOTED_TYPE = re.compile(r"[\w.]+( \| [\w.]+)*")
_WIDTH = 120  # of a line


@cache
def standalone(module: str, *shipped: tuple[str, str]) -> str:
    """Return a module's text in which all that it reaches of gemmtune stands in the place of imports from it.

    What nothing reaches is left out. Each import stands once, at the top.

    Args:
        module: full name of a module, whose imports from gemmtune stand at its top.
        shipped: full name and exported name of each module beside it; their imports are renamed.
    """
    beside = dict(shipped)
    every = _reached(module, beside=beside)
    found = set[_Import]().union(*(its.imports for its in every.values()))
    needed = {name: sorted({each.module for each in its.imports} & every.keys()) for name, its in every.items()}
    kept = [each for name in TopologicalSorter(needed).static_order() for each in every[name].kept]
    *_, public = (each for each in kept if "__all__" in each.defines)
    ours = {each._replace(module=beside[each.module]) for each in found if each.module in beside}
    at_run_time = {each for each in found if not each.is_ours} | ours
    for_types = set[_Import]().union(*(its.for_types for its in every.values())) - at_run_time
    head = _import_blocks(at_run_time, for_types)
    body = _joined(each for each in kept if "__all__" not in each.defines).lstrip("\n")
    return "\n".join([_head_of(every[module].text), _FUTURE, head, public.text.strip("\n") + "\n\n", body])


@cache
def package(
    module: str,
    resolver: str = "",
    instead: tuple[tuple[str, str], ...] = (),
    replaced: tuple[tuple[str, str], ...] = (),
    types_of: str = "",
) -> Mapping[str, str]:
    """Return a package's files, text by name: a module as `__init__.py`, and the modules that it reaches.

    Each file is its module without the statements that nothing reaches. Imports between the files are relative.

    Args:
        module: full name of the package's module, whose `__all__` is what the package is for.
        resolver: full name of a function that takes the place of imports from torch's modules, whose names come and
            go: of a module's name and names in it, it returns what stands for the names, or for the only one. Empty
            where no module imports from them.
        instead: full names of modules, each with that of the module that takes its place.
        replaced: texts in the modules, each with the one that stands for it in the files.
        types_of: name of the package beside it whose types its annotations name.
    """
    found = {}
    for name, its in _reached(module, [resolver] if resolver else (), instead=instead).items():
        text = _text(its, resolver, types_of)
        for before, after in replaced:
            text = text.replace(before, after)
        found["__init__.py" if name == module else f"{name.rpartition('.')[2]}.py"] = text
    return dict(sorted(found.items()))


class _Import(NamedTuple):
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

    def relative(self, package: str = "") -> Self:
        """Return the import from a module of a package, by default the own one, if the module is gemmtune's."""
        return self._replace(module=f"{package}.{self.module.rpartition('.')[2]}") if self.is_ours else self


@dataclass(frozen=True, eq=False)
class _Statement:
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
        """Texts that stand in the statement."""
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


class _Module:
    """Module with the statements that are needed of it.

    Attributes:
        text: text of the whole module.
        kept: statements that define needed names, or run without a name; without imports.
        has_future: whether annotations of the module are not evaluated.
    """

    def __init__(self, text: str, instead: Iterable[tuple[str, str]] = ()) -> None:
        self.text, self.kept, self._instead = text, list[_Statement](), dict(instead)
        self._wanted, every = set[str](), _statements(text)
        self._imports = [each.node for each in every if isinstance(each.node, _IMPORTS)]
        self._for_types = [line for each in every if _is_for_types(each.node) for line in each.node.body]
        self._others = [each for each in every if not isinstance(each.node, _IMPORTS) and not _is_for_types(each.node)]
        self.has_future = "__future__" in [getattr(each, "module", "") for each in self._imports]

    @property
    def imports(self) -> set[_Import]:
        """Names that the kept statements use of other modules."""
        found = _imports(self._imports, self._used())
        return {each._replace(module=self._instead.get(each.module, each.module)) for each in found}

    @property
    def for_types(self) -> set[_Import]:
        """Names that the kept statements use of other modules for type checkers alone."""
        return _imports(self._for_types, self._used())

    def keep(self, names: set[str]) -> Iterator[_Import]:
        """Keep what defines further names and what this uses; yield what is imported of gemmtune for the first time."""
        before, size = self.imports, -1
        self._wanted |= names
        while len(self._wanted) > size:
            size = len(self._wanted)
            self.kept = [each for each in self._others if not each.defines or each.defines & self._wanted]
            self._wanted |= self._used()
        yield from sorted(each for each in self.imports - before if each.is_ours)

    def _used(self) -> set[str]:
        texts = (each.texts for each in self.kept if "__all__" in each.defines)
        return set[str]().union(*(each.uses for each in self.kept), *texts)


def _reached(
    module: str, others: Iterable[str] = (), *, instead: Iterable[tuple[str, str]] = (), beside: Container[str] = ()
) -> dict[str, _Module]:
    """Return a module and those that it reaches by its `__all__`, by their full names.

    Args:
        module: full name of the module.
        others: further names that are needed, each behind its module's.
        instead: full names of modules, each with that of the module that takes its place.
        beside: full names of modules to leave out, with what they alone reach.
    """
    found: dict[str, _Module] = {}
    waiting = [(module, "__all__"), *((name.rpartition(".")[0], name.rpartition(".")[2]) for name in others)]
    while waiting:
        name, wanted = waiting.pop()
        if name not in found:
            package, _, module_name = name.rpartition(".")
            found[name] = _Module(files(package).joinpath(f"{module_name}.py").read_text(encoding="utf-8"), instead)
        waiting += [(each.module, each.name) for each in found[name].keep({wanted}) if each.module not in beside]
    return found


def _text(module: _Module, resolver: str, types_of: str) -> str:
    """Return the text of a package's file."""
    resolving, _, resolve = resolver.rpartition(".")
    resolved = {each for each in module.imports if each.module.startswith("torch.")}
    found = module.imports - resolved | ({_Import(resolving, resolve, resolve)} if resolved else set())
    head = _head_of(module.text) + (f"\n{_FUTURE}" if module.has_future else "")
    if found or module.for_types:
        head += "\n" + _import_blocks(
            {each.relative() for each in found}, {each.relative(types_of) for each in module.for_types}
        )
    names = _resolved_lines(resolved, resolve)
    if names:
        head += "\n" + "".join(names)
    body = _joined(module.kept)
    return head + ("" if names or body.startswith("\n") else "\n") + body


def _resolved_lines(resolved: Iterable[_Import], resolve: str) -> list[str]:
    """Return a line per module that binds its names to what a function returns for them, wrapped as formatters do."""
    found = []
    for module, names in groupby(sorted(resolved), key=lambda each: each.module):
        each = [*names]
        bound, asked = (
            ", ".join(it.bound for it in each),
            ", ".join(f'"{text}"' for text in (module, *(it.name for it in each))),
        )
        line = f"{bound} = {resolve}({asked})\n"
        found.append(line if len(line) <= _WIDTH + 1 else f"{bound} = {resolve}(\n    {asked}\n)\n")
    return found


def _head_of(text: str) -> str:
    """Return the head of an exported module: licence and docstring."""
    return SPDX + "".join(text.splitlines(keepends=True)[: _nodes(text)[0].end_lineno])


@cache  # packages share modules
def _nodes(text: str) -> list[ast.stmt]:
    return ast.parse(text).body


@cache
def _statements(text: str) -> tuple[_Statement, ...]:
    """Return the statements of a module's text behind its docstring."""
    lines, (first, *body) = text.splitlines(keepends=True), _nodes(text)
    found, end, later = list[_Statement](), first.end_lineno or 0, [*body[1:], None]
    for node, behind in zip(body, later, strict=True):
        if _is_text(node):  # belongs to the statement before it
            continue
        start, last = end, behind if _is_text(behind) else node
        end = (last.end_lineno if last is not None else None) or start
        found.append(_Statement("".join(lines[start:end]), node))
    return tuple(found)


def _joined(kept: Iterable[_Statement]) -> str:
    """Return the text of statements, with two empty lines around a function or class."""
    found, least = "", 0
    for each in kept:
        body = each.text.lstrip("\n")
        is_large = isinstance(each.node, ast.FunctionDef | ast.ClassDef)
        found += "\n" * max(len(each.text) - len(body), 2 * is_large, least) + body
        least = 2 * is_large
    return found


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


def _import_lines(found: Iterable[_Import]) -> str:
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


def _import_blocks(found: Set[_Import], for_types: Set[_Import]) -> str:
    """Return import statements, and those for type checkers alone in a block of their own."""
    if not for_types:
        return _import_lines(found)
    found = found | {_Import("typing", "TYPE_CHECKING", "TYPE_CHECKING")}
    return f"{_import_lines(found)}\nif TYPE_CHECKING:\n{indent(_import_lines(for_types), '    ')}"


def _is_for_types(node: ast.stmt) -> TypeGuard[ast.If]:
    """Return whether a statement is the block of imports that only type checkers read."""
    return isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"


def _is_text(node: ast.stmt | None) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
