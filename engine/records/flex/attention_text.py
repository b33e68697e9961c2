"""Texts of attention, for records and for loaders of tables. Needs the standard library alone."""

import re
from collections.abc import Mapping

from gemmtune.engine.records.flex.masks import NONE

SIZES = {
    **{"b": "batch", "h": "heads", "kvh": "kv_heads"},
    **{"q": "queries", "kv": "keys", "d": "head_dim", "dv": "value_dim"},
}
"""Sizes by their letters in a text."""
DTYPES = ("bf16", "fp16")
"""Types of operands that rows have."""
VALUES = ("documents", "lengths", "seen")
"""Fields that say what tensors hold that a mask reads."""
USUAL_BLOCK = 128
"""Queries and keys per block of a mask, where nothing else is said."""
_MOST_DECODED = 128


def decodes(queries: int, heads: int, kv_heads: int, *, of_heads: bool) -> bool:
    """Return whether torch makes its decode kernel of a call; `of_heads` says that its mask's blocks differ by head."""
    ratio = heads // kv_heads
    return queries < _MOST_DECODED and ratio & (ratio - 1) == 0 and (ratio == 1 or not of_heads)


def attention_text(
    phase: str,
    sizes: Mapping[str, int],
    dtype: str,
    mask: str,
    score: str,
    values: Mapping[str, str],
    block: tuple[int, int],
    dynamic: str = "",
) -> str:
    """Return the name of an attention, `flex:forward:b2:h32:kvh8:q4096:kv4096:d128:bf16:mask=causal`.

    Args:
        phase: kernel of the call.
        sizes: sizes by the names in `SIZES`.
        dtype: element type as problems write it.
        mask: mask as `masks.short` writes it; `score` likewise.
        score: score function.
        values: texts of what tensors hold that the mask reads, by the names in `VALUES`; empty for all values.
        block: queries and keys per block of the mask.
        dynamic: lengths that a kernel takes at launch: `s`, `kv`, or empty for none.
    """
    usual = {"kvh": sizes["heads"], "dv": sizes["head_dim"]}
    facts = {"mask": mask, "score": score, **values}
    parts = ["flex", phase]
    parts += [f"{letter}{sizes[name]}" for letter, name in SIZES.items() if usual.get(letter) != sizes[name]]
    parts += [dtype, *(f"{name}={its}" for name, its in facts.items() if its not in ("", NONE))]
    if mask != NONE and block != (USUAL_BLOCK, USUAL_BLOCK):
        parts.append(f"block={block[0]}x{block[1]}")
    return ":".join([*parts, *([f"dynamic={dynamic}"] if dynamic else [])])


def with_length(name: str, length: object) -> str:
    """Return the name of an attention with a text for its dynamic length; other names as they are."""
    if name.endswith(":dynamic=s"):
        return re.sub(r":q\d+:kv\d+:", f":q{length}:kv{length}:", name, count=1)
    return re.sub(r":kv\d+:", f":kv{length}:", name, count=1) if name.endswith(":dynamic=kv") else name
