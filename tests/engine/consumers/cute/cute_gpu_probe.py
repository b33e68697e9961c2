"""Probe for its own process on a GPU, which cannot import gemmtune: both dispatchers with the exported table.

Argument: the folder of the export. Prints one JSON object: what ran, and its errors against fp64.
"""

from __future__ import annotations

import json
import sys
from unittest.mock import patch

import cutlass.operators as ops
import torch
from quack import gemm_interface

M, N, K = 256, 384, 512


def error(found, reference):
    return float((found.double() - reference).norm() / reference.norm())


def main(folder):
    sys.modules["gemmtune"] = None  # any import of it fails from here on
    sys.path.insert(0, folder)
    import gemmtune_cutlass
    import gemmtune_quack

    torch.manual_seed(0)
    a = torch.randn(M, K, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(N, K, device="cuda", dtype=torch.bfloat16).t()
    a16, b16 = a.half(), b.half()
    report = {"errors": []}

    out = torch.zeros(M, N, device="cuda", dtype=torch.bfloat16)
    args = ops.GemmArguments(a, b, out, torch.float32)
    target = "".join(map(str, torch.cuda.get_device_capability())) + "a"
    (operator,) = ops.get_operators(args, target_sm=target, heuristic=gemmtune_cutlass.TableHeuristic(), limit=1)
    report["operator"] = [type(operator).__name__, *operator.metadata.design.tile_shape[:2]]
    operator.run(args, operator.compile(args, target_sm=target))
    report["errors"].append(error(out, a.double() @ b.double()))

    table, executed = gemmtune_quack.QuackMap(), []
    execute = gemm_interface._gemm_execute

    def recorded(*args, **kwargs):
        executed.append([kwargs["config"].tile_m, kwargs["config"].tile_n])
        return execute(*args, **kwargs)

    with patch.object(gemm_interface, "_gemm_execute", recorded):
        for x, y in ((a16, b16), (a16, b16), (a, b)):  # twice the row's, then a miss
            report["errors"].append(error(table.gemm(x, y), x.double() @ y.double()))
    torch.cuda.synchronize()
    json.dump({**report, "executed": executed}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
