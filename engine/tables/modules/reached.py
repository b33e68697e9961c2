"""Modules of gemmtune that one module reaches, each with the statements that are needed of it."""

from collections.abc import Container, Iterable, Iterator, Mapping

from gemmtune.engine.tables.modules.statements import (
    IMPORTS,
    Import,
    Statement,
    imports,
    is_for_types,
    source,
    statements,
)


class Module:
    """Module with the statements that are needed of it.

    Attributes:
        text: text of the whole module.
        kept: statements that define needed names, or run without a name; without imports.
        has_future: whether annotations of the module are not evaluated.
    """

    def __init__(self, text: str) -> None:
        self.text, self.kept = text, list[Statement]()
        self._wanted, every = set[str](), list(statements(text))
        self._imports = [each.node for each in every if isinstance(each.node, IMPORTS)]
        self._for_types = [line for each in every if is_for_types(each.node) for line in each.node.body]
        self._others = [each for each in every if not isinstance(each.node, IMPORTS) and not is_for_types(each.node)]
        self.has_future = "__future__" in [getattr(each, "module", "") for each in self._imports]

    @property
    def imports(self) -> set[Import]:
        """Names that the kept statements use of other modules."""
        return imports(self._imports, self._used())

    @property
    def for_types(self) -> set[Import]:
        """Names that the kept statements use of other modules for type checkers alone."""
        return imports(self._for_types, self._used())

    def keep(self, names: set[str]) -> Iterator[Import]:
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


def reached(
    module: str,
    others: Iterable[str] = (),
    *,
    instead: Mapping[str, str] | None = None,
    beside: Container[str] = (),
) -> dict[str, Module]:
    """Return a module and those that it reaches by its `__all__`, by their full names.

    Args:
        module: full name of the module.
        others: further names that are needed, each behind its module's.
        instead: full names of modules, each with that of the module whose text is taken instead.
        beside: full names of modules to leave out, with what they alone reach.
    """
    found: dict[str, Module] = {}
    waiting = [(module, "__all__"), *((name.rpartition(".")[0], name.rpartition(".")[2]) for name in others)]
    while waiting:
        name, wanted = waiting.pop()
        its = found.setdefault(name, Module(source((instead or {}).get(name, name))))
        waiting += [(each.module, each.name) for each in its.keep({wanted}) if each.module not in beside]
    return found
