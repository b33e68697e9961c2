"""Rows of the kernels between the products: the config stands in the generated source. Needs torch alone.

Inductor times no config of a kernel whose config is fixed, and descends from none. The config is a part of the code, so
each process runs it, from caches and in packages, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import torch
from torch._inductor.codegen.triton import FixedTritonConfig, TritonKernel
from torch._inductor.virtualized import V

from gemmtune.engine.consumers.inductor.loader.boundary import nothing, or_else, warn_once
from gemmtune.engine.consumers.inductor.loader.generated import source_key

TableChoices: TypeAlias = Any
"""Handler of choices of the module `table_choices`, with its table."""
_SIZES = re.compile(r"size_hints=(\{.*?\})")
_SIGNATURE = re.compile(r"'signature': (\{.*?\})")
_BLOCK = re.compile(r"'(\w*BLOCK)': 'constexpr'")
_KERNEL = "@triton.jit\n"


def serve_generated(
    handler: TableChoices,
    replace: Callable[[Any, str, Callable[..., Any]], None],
    may_choose: Callable[[torch.device], bool],
) -> None:
    """Let the rows of a handler's table fix configs, where a graph `may_choose` them; see `_Replaced.function`."""
    if handler._table.generated:
        replace(TritonKernel, "codegen_kernel", partial(_generated, handler, may_choose))


def _generated(
    handler: TableChoices,
    may_choose: Callable[[torch.device], bool],
    generate: Callable[..., str],
    kernel: Any,  # noqa: ANN401 (Inductor's TritonKernel)
    *asked: Any,  # noqa: ANN401 (of any torch)
    **named: Any,  # noqa: ANN401 (of any torch)
) -> str:
    """Return a kernel's source: that of its row's config, or Inductor's own."""
    source = generate(kernel, *asked, **named)

    @or_else(nothing)
    def fixed() -> str | None:
        config = handler._table.generated.get(key := key_of(source))
        device = V.graph.get_current_device_or_throw()
        if config is None or kernel.fixed_config or not may_choose(device) or handler.is_other_gpu(device):
            return None
        if why := _refusal(config, kernel, source):
            warn_once(f"generated.{key}.config {why}: torch chooses the config of this kernel")
            return None
        kernel.fixed_config = FixedTritonConfig(dict(config))
        try:
            return generate(kernel, *asked, **named)
        except BaseException:
            kernel.fixed_config = None  # Inductor's own source is returned
            raise

    return fixed() or source


def _refusal(config: Mapping[str, int], kernel: Any, source: str) -> str:  # noqa: ANN401 (Inductor's TritonKernel)
    """Return what is wrong with the blocks of a config; empty for the kernel's own, each a divisor of the largest one.

    Masks are left out for those that divide it. A block too many or too few fails only when the kernel is compiled.
    """
    blocks = {name: value for name, value in config.items() if name.endswith("BLOCK")}
    takes = _BLOCK.findall(source)
    for name in sorted({*blocks, *takes}):
        if name not in takes:
            return f"names {name}, which the kernel lacks"
        if name not in blocks:
            return f"lacks the kernel's {name}"
        if (most := kernel.max_block(name.removesuffix("BLOCK"))) % blocks[name]:
            return f"has {name}={blocks[name]}, which does not divide {most}"
    return ""


def key_of(source: str) -> str:
    """Return the key of a generated kernel, in whose source helpers may stand before it; empty for one of no sizes."""
    sizes, signature = _SIZES.search(source), _SIGNATURE.search(source)
    return source_key(sizes[1], signature[1], source.rpartition(_KERNEL)[2]) if sizes and signature else ""
