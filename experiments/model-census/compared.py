"""Difference between a capture and a truth. Imports nothing.

A compilation may do these things, and nothing else differs: a 1x1 convolution becomes a product, the two products of a
written-out attention become an attention (six with gradients), an attention without a kernel becomes such products, a
product with k = 1 becomes pointwise, and sizes are padded to 16 bytes. Each is allowed as often as the number of the
library's calls differs, for whole attentions alone, and types are compared.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import product
from typing import Any

_SIZES = re.compile(r"\b(\d+(?:x\d+){2,3})\b")
_EAGER = re.compile(r"aten\.(\w+?)((?:\[[0-9, ]*\]×?)+)")
_LIBRARY = ("_grouped_mm", "_scaled_mm", "_int_mm", "lstm", "gru")
_ALIGNMENT = {"fp32": 4, "tf32": 4, "fp64": 2}  # elements of 16 bytes; 8 of the rest


def difference(found: dict[str, Any], truth: dict[str, Any], grad: bool) -> dict[str, Any]:
    """Return products that are missing and in excess, and other differences; empty if both are equal."""
    have, want = without_type(found["products"]), without_type(truth["products"])
    calls: Counter[str] = Counter()
    for operation, reason, count in found["unseen"]:
        eager = _EAGER.fullmatch(operation)
        sizes = _SIZES.findall(reason)[-1:]  # those of operands come first
        name = eager[1] if eager else operation.removeprefix("aten.").partition(".")[0]
        if eager and name in ("mm", "addmm", "bmm", "baddbmm"):
            have[eager_sizes(eager[2])] += count
        elif sizes:
            have[whole(sizes[0])] += count
        elif "attention" in name and "backward" not in name:
            calls["attention"] += count
        else:
            calls[name] += count
    missing, extra = want - have, have - want
    apart: dict[str, Any] = {}
    ones = Counter({text.partition(":")[0]: count for text, count in truth["convolutions"].items() if text})
    left = sum(truth["convolutions"].values()) - calls["convolution"]
    for sizes, count in ones.items():
        left -= taken(extra, [[sizes]], min(count, left))
    less = sum(truth["attention"].values()) - calls["attention"]
    for text, count in truth["attention"].items():
        less -= taken(extra, parts_of(*text.split("x"), grad=grad), min(count, less))
    if less < 0:
        less += fuse(missing, -less, grad)
    pad(missing, extra, truth["products"])
    missing = Counter({sizes: count for sizes, count in missing.items() if count > 0 and not sizes.endswith("x1")})
    apart |= {name: dict(+its) for name, its in (("missing", missing), ("extra", extra)) if +its}
    apart |= {name: left for name, left in (("convolutions", left), ("attentions", less)) if left}
    others = {name: [calls[name], truth["others"].get(name, 0)] for name in _LIBRARY}
    apart |= {name: both for name, both in others.items() if both[0] != both[1]}
    types = {text.partition(":")[2] for text in found["products"]} - {
        text.partition(":")[2] for text in [*truth["products"], *truth["convolutions"]]
    }
    return apart | ({"types": sorted(types)} if types and not truth["attention"] else {})


def without_type(products: dict[str, int]) -> Counter[str]:
    found: Counter[str] = Counter()
    for text, count in products.items():
        found[text.partition(":")[0]] += count
    return found


def whole(sizes: str) -> str:
    return sizes if sizes.count("x") == 3 else f"1x{sizes}"


def eager_sizes(operands: str) -> str:
    shapes = [[int(size) for size in part.split(",")] for part in re.findall(r"\[([0-9, ]+)\]", operands)]
    left, right = shapes[-2:]
    batch = left[0] if len(left) == 3 else 1
    return f"{batch}x{left[-2]}x{right[-1]}x{left[-1]}"


def parts_of(batch: str, rows: str, columns: str, head: str, wide: str, *, grad: bool) -> list[list[str]]:
    """Return the products of an attention, each with the ways to write it: backward, either factor may come first."""
    forward = [(rows, columns, head), (rows, wide, columns)]
    backward = [(columns, wide, rows), (rows, columns, wide), (rows, head, columns), (columns, head, rows)]
    found = [[f"{batch}x{m}x{n}x{k}"] for m, n, k in forward]
    return found + [[f"{batch}x{m}x{n}x{k}", f"{batch}x{n}x{m}x{k}"] for m, n, k in backward if grad]


def taken(rest: Counter[str], parts: list[list[str]], count: int) -> int:
    """Take all of some products out of a rest, `count` times at most, and return how often they were there."""
    for number in range(count):
        for ways in product(*parts):
            needed = Counter(ways)
            if all(rest[each] >= times for each, times in needed.items()):
                rest.subtract(needed)
                break
        else:
            return number
    return max(0, count)


def fuse(missing: Counter[str], count: int, grad: bool) -> int:
    """Take whole attentions out of what is missing, `count` at most, and return how many there were."""
    done = 0
    for first, second in product(list(missing), repeat=2):
        (batch, rows, columns, head), (other, again, wide, length) = first.split("x"), second.split("x")
        if (batch, rows, columns) == (other, again, length):
            done += taken(missing, parts_of(batch, rows, columns, head, wide, grad=grad), count - done)
    return done


def pad(missing: Counter[str], extra: Counter[str], products: dict[str, int]) -> None:
    """Take products that are there with padded sizes out of what is missing and in excess."""
    types = {text.partition(":")[0]: text.partition(":")[2] for text in products}
    for sizes, other in product(list(missing), list(extra)):
        step = _ALIGNMENT.get(types[sizes], 8)
        one, two = ([int(each) for each in text.split("x")] for text in (sizes, other))
        if one[0] == two[0] and all(b in (a, -(-a // step) * step) for a, b in zip(one, two, strict=True)):
            both = max(0, min(missing[sizes], extra[other]))
            missing[sizes] -= both
            extra[other] -= both
