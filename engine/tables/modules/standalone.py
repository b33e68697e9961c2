"""Text of one module that runs without gemmtune, made of the modules that it imports."""

from functools import cache
from graphlib import TopologicalSorter

from gemmtune.engine.tables.modules.reached import reached
from gemmtune.engine.tables.modules.statements import FUTURE, Import, head_of, import_blocks, joined


@cache
def standalone(module: str, *shipped: tuple[str, str]) -> str:
    """Return a module's text in which all that it reaches of gemmtune stands in the place of imports from it.

    What nothing reaches is left out. Each import stands once, at the top.

    Args:
        module: full name of a module, whose imports from gemmtune stand at its top.
        shipped: full name and exported name of each module beside it; their imports are renamed.
    """
    beside = dict(shipped)
    every = reached(module, beside=beside)
    found = set[Import]().union(*(its.imports for its in every.values()))
    needed = {name: sorted({each.module for each in its.imports} & every.keys()) for name, its in every.items()}
    kept = [each for name in TopologicalSorter(needed).static_order() for each in every[name].kept]
    *_, public = (each for each in kept if "__all__" in each.defines)
    ours = {each._replace(module=beside[each.module]) for each in found if each.module in beside}
    at_run_time = {each for each in found if not each.is_ours} | ours
    for_types = set[Import]().union(*(its.for_types for its in every.values())) - at_run_time
    head = import_blocks(at_run_time, for_types)
    body = joined(each for each in kept if "__all__" not in each.defines).lstrip("\n")
    return "\n".join([head_of(every[module].text), FUTURE, head, public.text.strip("\n") + "\n\n", body])
