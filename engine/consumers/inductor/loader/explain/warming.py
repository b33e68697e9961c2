"""Compilation of a model ahead of serving. Needs torch alone."""

import warnings
from collections.abc import Callable, Sequence

import torch

from gemmtune.engine.consumers.inductor.loader.boundary import first_line


def warmed_up(call: Callable[[int], object], sizes: Sequence[int]) -> bytes:
    """Call a model at every m of `sizes`, and return the compiled code for `torch.compiler.load_cache_artifacts`.

    A size that the model refuses is skipped with a warning, unless it is the first, whose exception is raised as it is.

    Raises:
        RuntimeError: torch compiled nothing that it caches.
    """
    first, *others = sizes
    call(first)
    for m in others:
        try:
            call(m)
        except Exception as error:  # a model may refuse a long input in any way
            what = f"{type(error).__name__}: {first_line(error)}"
            warnings.warn(f"the model does not run at m = {m}, nothing is compiled for it: {what}", stacklevel=3)
    found = torch.compiler.save_cache_artifacts()
    if found is None:
        raise RuntimeError("nothing was compiled that torch caches: is the model compiled, and fx_graph_cache on?")
    return found[0]
