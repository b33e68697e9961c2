"""Products that run outside of compiled graphs. Imports torch."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gemmtune.engine.consumers.inductor.floor.call_costs import cost_of_call
from gemmtune.engine.consumers.inductor.floor.shares import Cost

_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "_int_mm", "_scaled_mm", "_grouped_mm")


class EagerProducts(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch's, untyped
    """Counter of the products that torch runs one by one, such as those behind a graph break."""

    supports_higher_order_operators = True
    """Whether torch hands operators such as flex_attention and cond to this mode, rather than refuse them."""

    def __init__(self, is_compiled: Callable[[], bool]) -> None:
        """Count products while `is_compiled` says that no graph is traced or run."""
        super().__init__()  # type: ignore[no-untyped-call] # as above
        self._is_compiled = is_compiled
        self.costs: defaultdict[str, Counter[Cost]] = defaultdict(Counter)

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Return that torch.compile goes on under this mode."""
        return True

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 (torch's protocol)
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 (as above)
        """Count an operation that multiplies matrices, and run it."""
        name = getattr(func, "_opname", "")
        if name in _PRODUCTS and not self._is_compiled() and not torch.compiler.is_compiling():
            sizes = "×".join(str(list(a.shape)) for a in args if isinstance(a, torch.Tensor))
            out = func(*args, **(kwargs or {}))
            self.costs[f"aten.{name}{sizes}"][cost_of_call(func, args, kwargs or {}, out)] += 1
            return out
        return func(*args, **(kwargs or {}))
