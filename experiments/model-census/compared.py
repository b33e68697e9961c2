"""Difference between a capture and a truth. Imports nothing.

Allowed, as a compilation does it: a 1x1 convolution becomes a product, two products become an attention, an attention
without a kernel becomes products, a product with k = 1 is pointwise, and sizes are padded to 16 bytes. Products in
excess of such sizes are not checked against the number of the library's calls; types are not compared.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

_SIZES = re.compile(r"\b(\d+(?:x\d+){2,3})\b")
_EAGER = re.compile(r"aten\.(\w+?)((?:\[[0-9, ]*\]×?)+)")


def difference(found: dict[str, Any], truth: dict[str, Any]) -> dict[str, Any]:
    """Return products that are missing and in excess; empty if both are equal."""
    have, want = without_type(found["products"]), without_type(truth["products"])
    attentions = 0
    for operation, reason, count in found["unseen"]:
        eager = _EAGER.fullmatch(operation)
        sizes = _SIZES.search(reason)
        if eager:
            have[eager_sizes(*eager.groups())] += count
        elif sizes:
            have[whole(sizes[1])] += count
        elif "attention" in operation and "backward" not in operation:
            attentions += count
    missing, extra = want - have, have - want
    for text, count in truth["convolutions"].items():
        if text:
            match(missing, extra, text.partition(":")[0], count)
    for text, count in truth["attention"].items():
        batch, rows, columns, head, wide = text.split("x")
        for sizes in (
            (batch, rows, columns, head),
            (batch, rows, wide, columns),
            (batch, rows, columns, wide),
            (batch, columns, wide, rows),
            (batch, rows, head, columns),
            (batch, columns, head, rows),
            (batch, head, columns, rows),
        ):
            match(missing, extra, "x".join(sizes), count)
    fuse(missing, attentions - sum(truth["attention"].values()))
    for sizes in list(missing):
        for other in list(extra):
            if is_padded(sizes, other):
                both = min(missing[sizes], extra[other])
                missing[sizes] -= both
                extra[other] -= both
    missing = Counter({sizes: count for sizes, count in missing.items() if count > 0 and not sizes.endswith("x1")})
    extra = Counter({sizes: count for sizes, count in extra.items() if count > 0})
    return {name: dict(its) for name, its in (("missing", missing), ("extra", extra)) if its}


def without_type(products: dict[str, int]) -> Counter[str]:
    found: Counter[str] = Counter()
    for text, count in products.items():
        found[text.partition(":")[0]] += count
    return found


def whole(sizes: str) -> str:
    return sizes if sizes.count("x") == 3 else f"1x{sizes}"


def eager_sizes(name: str, operands: str) -> str:
    shapes = [
        [int(size) for size in part.split(",") if size.strip()] for part in re.findall(r"\[([0-9, ]*)\]", operands)
    ]
    if len(shapes) < 2 or len(shapes[-1]) < 2:
        return f"{name}{operands}"
    left, right = shapes[-2:]
    batch = left[0] if len(left) == 3 else 1
    return f"{batch}x{left[-2]}x{right[-1]}x{left[-1]}"


def match(missing: Counter[str], extra: Counter[str], sizes: str, count: int) -> None:
    """Take products out of the excess that something else became."""
    extra[sizes] -= min(count, extra[sizes])


def fuse(missing: Counter[str], count: int) -> None:
    """Take pairs of products from what is missing that Inductor recognised as attention, at most `count`."""
    for first in list(missing):
        batch, rows, columns, _ = first.split("x")
        seconds = [each for each in missing if each.startswith(f"{batch}x{rows}x") and each.endswith(f"x{columns}")]
        for second in seconds:
            both = min(missing[first], missing[second], count)
            if first != second and both > 0:
                missing[first] -= both
                missing[second] -= both
                count -= both


def is_padded(sizes: str, other: str) -> bool:
    one, two = ([int(each) for each in text.split("x")] for text in (sizes, other))
    return one[0] == two[0] and all(b in (a, -(-a // 4) * 4, -(-a // 8) * 8) for a, b in zip(one, two, strict=True))
