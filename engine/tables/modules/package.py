"""Files of a package that runs without gemmtune, made of the modules that one module reaches."""

from collections.abc import Mapping
from functools import cache

from gemmtune.engine.tables.modules.reached import Module, reached
from gemmtune.engine.tables.modules.statements import FUTURE, Import, head_of, import_blocks, joined


@cache
def package(
    module: str,
    resolver: str,
    instead: tuple[tuple[str, str], ...] = (),
    replaced: tuple[tuple[str, str], ...] = (),
) -> Mapping[str, str]:
    """Return a package's files, text by name: a module as `__init__.py`, and the modules that it reaches.

    Each file is its module without the statements that nothing reaches. Imports between the files are relative.

    Args:
        module: full name of the package's module, whose `__all__` is what the package is for.
        resolver: full name of a function that takes the place of imports from torch's modules, whose names come and
            go: of a module's name and a name in it, it returns what stands for that name.
        instead: full names of modules, each with that of the module whose text is taken instead.
        replaced: texts in the modules, each with the one that stands for it in the files.
    """
    found = {}
    for name, its in reached(module, [resolver], instead=dict(instead)).items():
        text = _text(its, resolver)
        for before, after in replaced:
            text = text.replace(before, after)
        found["__init__.py" if name == module else f"{name.rpartition('.')[2]}.py"] = text
    return dict(sorted(found.items()))


def _text(module: Module, resolver: str) -> str:
    """Return the text of a package's file."""
    resolving, _, resolve = resolver.rpartition(".")
    resolved = {each for each in module.imports if each.module.startswith("torch.")}
    found = module.imports - resolved | ({Import(resolving, resolve, resolve)} if resolved else set())
    head = head_of(module.text) + (f"\n{FUTURE}" if module.has_future else "")
    if found or module.for_types:
        head += "\n" + import_blocks({each.relative() for each in found}, module.for_types)
    names = [f'{each.bound} = {resolve}("{each.module}", "{each.name}")\n' for each in sorted(resolved)]
    if names:
        head += "\n" + "".join(names)
    body = joined(module.kept)
    return head + ("" if names or body.startswith("\n") else "\n") + body
