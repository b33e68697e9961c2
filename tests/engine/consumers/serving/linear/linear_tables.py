"""Tables of products of 8-bit floats, and their export without a compiler."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import patch

from gemmtune.engine.consumers.serving.linear import exporter
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem, gemm
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, RangeRow, Row, Table
from gemmtune.engine.seams.kernel_call import RUNTIME_PACKAGES
from gemmtune.engine.tables.export import export_bundle

SCALED, TENSOR_WISE = "mul(column[fp32]).mul(row[fp32])", "mul(scalar[fp32]).mul(scalar2[fp32])"
TILES = {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 64, "GROUP_M": 8, "num_stages": 2, "num_warps": 2}
SPLIT_K = {"warp_n": 16, "warps_n": 1, "warps_k": 4, "split_k": 1, "k_unroll": 1, "num_stages": 4, "share_a": False}
CONFIGS = {"aten": {}, "triton_mm": TILES, "cute_splitk": {**SPLIT_K, "use_pdl": False}}


def choice(space, time_ns=100.0, config=None):
    its = Config(CONFIGS[space] if config is None else config)
    toolchain = "torch 2.13.0"
    timed = (time_ns, time_ns - 1, time_ns + 1)
    return Choice(space, its, *timed, 32, Evidence.MEASURED, toolchain, "graph-cold-l2")


def row(problem, *spaces):
    choices = tuple(choice(space, 100.0 + place) for place, space in enumerate(spaces))
    return Row(Problem.parse(problem), choices, choice("aten", 200.0), 0.5, ())


def ranged(problem, first, last, space):
    its = Problem.parse(problem)
    return RangeRow(its, first, last, choice(space), ((its.m, 0.0),))


def table(*rows, ranges=()):
    return Table(catalogue.device("H200"), rows, "latency", ranges)


def built(wanted, entry):
    """Return entries of kernels without their compilers, as their artifacts would give them."""
    toolchain = Toolchain(tuple((name, "1.0") for name in RUNTIME_PACKAGES))

    def made(task, config):
        problem, tile = gemm(task.problem), dict(config)
        blocks = -(-problem.n // tile.get("BLOCK_N", 1))
        launch = {"entry": "triton_mm", "grid_x": blocks, "grid_y": 1, "grid_z": 1, "threads": 64, "shared_bytes": 2048}
        names = " ".join([*problem.argument_names, *(["m"] if problem.dynamic_m else [])])
        launch |= {"arguments": names, **({"block_m": tile["BLOCK_M"]} if problem.dynamic_m else {})}
        artifact = SimpleNamespace(launch=tuple(launch.items()), toolchain=toolchain)
        return entry(task, artifact, f"{task.key} {config}".encode())

    return {job: made(*job) for job in wanted}


def exported(*tables, engine=exporter.VllmFp8Exporter):
    """Return the files of an engine's plug-in for tables of GPUs."""
    with patch.object(exporter, "built_kernels", built):
        return export_bundle(engine(), tables)
