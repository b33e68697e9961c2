"""Configs of Triton kernels as source."""

from collections.abc import Mapping

from gemmtune.engine.records.config import Value

_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


def triton_config(values: Mapping[str, Value]) -> str:
    """Return `triton.Config({"BLOCK_M": 64}, num_warps=4)`; the text of one of Triton's types names it."""
    options = "".join(f", {name}={values[name]}" for name in _OPTIONS if name in values)
    texts = {name: x if isinstance(x, str) and x.startswith("tl.") else repr(x) for name, x in values.items()}
    params = ", ".join(f'"{name}": {text}' for name, text in texts.items() if name not in _OPTIONS)
    return f"triton.Config({{{params}}}{options})"
