"""Probe for its own process, which cannot import gemmtune: cutlass.operators on CPU tensors with exported tables.

Arguments: the folder of an export for an H200, one for a B200, and one more of each, of bf16 nt rows of many operators.
Prints one JSON object: what was ranked first.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import cutlass.operators as ops
import torch


def arguments(m, n, k, dtype=torch.bfloat16, layout="nt", acc=torch.float32, batch=()):
    a = torch.empty(*batch, m, k, dtype=dtype) if layout[0] == "n" else torch.empty(*batch, k, m, dtype=dtype).mT
    b = torch.empty(*batch, k, n, dtype=dtype) if layout[1] == "n" else torch.empty(*batch, n, k, dtype=dtype).mT
    return ops.GemmArguments(a, b, torch.empty(*batch, m, n, dtype=dtype), acc)


def describe(operator):
    design = operator.metadata.design
    return {
        "class": type(operator).__name__,
        "tile": design.tile_shape[:2],
        "cluster": design.cluster_shape[:2],
        "two_cta": getattr(design, "use_2cta_mma", None),
        "scheduler": type(getattr(design, "tile_scheduler", None)).__name__,
    }


def first(args, heuristic, target):
    found = ops.get_operators(args, target_sm=target, heuristic=heuristic)
    return {"count": len(found), **describe(found[0])}


@contextmanager
def captured_messages():
    """Collect the messages that are logged and the warnings that are given."""
    messages = {"log": [], "warnings": []}
    handler = logging.Handler()
    handler.emit = lambda record: messages["log"].append(record.getMessage())
    logger = logging.getLogger("gemmtune")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        yield messages
    logger.removeHandler(handler)
    messages["warnings"] = [str(w.message) for w in given if w.category.__name__ == "TableWarning"]


def each_row(file, heuristic, target):
    """Return the operator ranked first for every row of a file."""
    problems = [row["problem"] for row in json.loads(file.read_text())["rows"]["cute_gemm"].values()]
    sizes = [map(int, problem.split(":")[0].split("x")) for problem in problems]
    return {p: first(arguments(*s), heuristic, target) for p, s in zip(problems, sizes, strict=True)}


class Reversed(ops.Heuristic):
    def rank(self, args, operators, *, target_sm=None, limit=None):
        return operators[::-1]


def main(hopper, blackwell, many_hopper, many_blackwell):
    sys.modules["gemmtune"] = None  # any import of it fails from here on
    sys.path.insert(0, hopper)
    report = {}
    with captured_messages() as report["loading"]:
        import gemmtune_cutlass

        table = ops.get_heuristic("gemmtune")()
    other = gemmtune_cutlass.TableHeuristic(Path(blackwell) / "cute_table.json")
    for target, folder in (("90a", many_hopper), ("100a", many_blackwell)):
        file = Path(folder) / "cute_table.json"
        report[f"many_{target}"] = each_row(file, gemmtune_cutlass.TableHeuristic(file), target)
    with captured_messages() as report["hits"]:
        report["hopper"] = first(arguments(512, 1024, 256), table, "90a")
        report["hopper_fp16_nn"] = first(arguments(512, 1024, 256, torch.float16, "nn"), table, "90a")
        report["rounded"] = first(arguments(400, 1024, 256), table, "90a")
        report["blackwell"] = first(arguments(512, 1024, 256), other, "100a")
        report["blackwell_static"] = first(arguments(512, 1024, 512), other, "100a")
        report["no_target"] = first(arguments(512, 1024, 256), table, None)
    plain = arguments(64, 1024, 256)
    with captured_messages() as report["misses"]:
        missed = [ops.get_operators(plain, target_sm="90a", heuristic=table) for _ in range(2)]
    stock = ops.get_operators(plain, target_sm="90a")
    in_order = [describe(operator) for operator in stock]
    report["miss_is_discovery_order"] = [[describe(operator) for operator in found] == in_order for found in missed]
    exact = gemmtune_cutlass.TableHeuristic(exact=True, fallback=Reversed())
    report["fallback"] = first(arguments(400, 1024, 256), exact, "90a") == {"count": len(stock), **describe(stock[-1])}
    with captured_messages() as report["filtered"]:
        kept = ops.get_operators(
            arguments(512, 1024, 256), lambda m: m.design.tile_shape[0] == 64, "90a", heuristic=table
        )
        report["filtered_count"] = len(kept)
    with captured_messages() as report["other_arch"]:
        report["other_arch_count"] = [
            len(ops.get_operators(arguments(512, 1024, 256), target_sm="100a", heuristic=table)) > 100 for _ in range(2)
        ]
    with captured_messages() as report["other_gpu"], patch("gemmtune_cutlass._gpu", lambda args: "NVIDIA H100"):
        report["other_gpu_count"] = [first(arguments(512, 1024, 256), table, "90a")["count"] for _ in range(2)]
    with captured_messages() as report["unlike"]:
        batched = arguments(512, 1024, 256, batch=(2,))
        half = arguments(512, 1024, 256, torch.float16, acc=torch.float16)
        report["unlike_counts"] = [
            len(ops.get_operators(args, target_sm="90a", heuristic=table)) > 1 for args in (batched, half)
        ]
        report["no_args"] = len(ops.get_operators(target_sm="90a", heuristic=table)) > 100
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
