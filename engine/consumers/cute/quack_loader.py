"""Loader of a gemmtune table for QuACK's plain GEMM. Needs quack-kernels; tested with 0.6.5.

    import gemmtune_quack

    table = gemmtune_quack.QuackMap()                        # once: it reads cute_table.json beside this file
    out = table.gemm(a, b)                                   # a is m×k, b is k×n, as in quack.gemm_interface.gemm

A product with a row runs the row's config, and nothing is tuned online. Any other runs the choice of QuACK's heuristic,
and is logged once. `config` returns the config alone, for entry points of QuACK that take one
(`gemm_act(..., config=)`). `gemm` calls the function behind QuACK's own tuned configs, so like these it is for eager
code, not for code under torch.compile.
"""

from dataclasses import fields
from pathlib import Path

import torch
from quack.gemm_config import GemmConfig
from quack.gemm_interface import gemm, gemm_tuned
from torch import Tensor

from gemmtune.engine.consumers.cute.table_loader import CuteTable, Key, dtype_name, layout_of

__all__ = ["QuackMap"]


class QuackMap:
    """QuACK configs by product."""

    def __init__(self, path: str | Path | None = None, *, exact: bool = False) -> None:
        """Read a table.

        Args:
            path: file of the table, by default `cute_table.json` beside this file.
            exact: whether m is never rounded up.

        Raises:
            OSError: the file cannot be read.
            TypeError: a part of the file has the wrong type.
            ValueError: the file is not JSON, of another schema, edited after it was written, or has an invalid row; or
                a row is no config of the installed QuACK.
        """
        source = Path(__file__).with_name("cute_table.json") if path is None else Path(path)
        self._table = CuteTable(source, "quack_gemm", exact=exact)
        known = {field.name for field in fields(GemmConfig)}
        for key, row in self._table.rows.items():
            unknown = sorted(set(row["gemm_config"]) - known)
            if unknown:
                raise ValueError(f"{source}: {key}: GemmConfig of this quack-kernels has no {', '.join(unknown)}")

    def config(self, a: Tensor, b: Tensor, out_dtype: torch.dtype | None = None) -> GemmConfig | None:
        """Return the row's config for a @ b accumulated in fp32; None without a row.

        Args:
            a: matrix of shape (m, k).
            b: matrix of shape (k, n).
            out_dtype: element type of the output, by default that of `a`.
        """
        key = _key(a, b, out_dtype or a.dtype)
        gpu = torch.cuda.get_device_name(a.device) if a.is_cuda else None
        row = None if key is None else self._table.row(key, gpu)
        return None if row is None else GemmConfig(**row["gemm_config"])

    def gemm(self, a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
        """Compute a @ b with the row's config; without a row, with QuACK's default.

        Args:
            a: matrix of shape (m, k).
            b: matrix of shape (k, n).
            out: tensor for the result, of shape (m, n); None allocates one.

        Returns:
            The product, `out` if it was given.
        """
        if out is None:
            out = torch.empty((*a.shape[:-1], b.shape[-1]), dtype=a.dtype, device=a.device)
        config = self.config(a, b, out.dtype) if layout_of(out.stride()) == "n" else None
        if config is None:
            gemm(a, b, out=out, tuned=False)
        else:
            gemm_tuned.fn(a, b, out, config=config, split_k=config.split_k)
        return out


def _key(a: Tensor, b: Tensor, out_dtype: torch.dtype) -> Key | None:
    """Return the product; None for batches and operands without a contiguous dimension, which no row describes."""
    if a.ndim != 2 or b.ndim != 2:
        return None
    a_layout, b_layout = layout_of(a.stride()), layout_of(b.stride())
    if a_layout is None or b_layout is None:
        return None
    (m, k), n = a.shape, b.shape[1]
    dtypes = dtype_name(a.dtype), dtype_name(b.dtype), dtype_name(out_dtype)
    return Key(m, n, k, *dtypes, "float32", a_layout + b_layout)
