"""Exporter for vLLM's batch-invariant product: one BLOCK_K per (n, k), and a tile per bucket of m."""

from collections import defaultdict
from collections.abc import Mapping

from gemmtune.engine.consumers.serving.invariant.vllm_plugin import CONSUMER, SCHEMA, TILE, parse_invariant_table
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.gemm.problem import Problem, gemm
from gemmtune.engine.records.gemm.terms import Bias, DType
from gemmtune.engine.records.table import Table
from gemmtune.engine.seams.exporter import Exporter
from gemmtune.engine.tables.export import sealed_json
from gemmtune.engine.tables.standalone import package
from gemmtune.engine.tables.summation import require_one_summation

_PACKAGE = "gemmtune_vllm_batch_invariant"
_SPACE = "triton_mm"
_WAY_OUT = "leave other products out, and tune with --batch-invariant --one-block-k"
_TILE = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 8, "num_stages": 3, "num_warps": 4}


class VllmBatchInvariantExporter(Exporter):
    """Export `vllm_batch_invariant_table.json` and the package by which vLLM takes its configs.

    The rows were timed in torch's `triton::mm`. vLLM's `matmul_kernel_persistent` has its loop over k within another
    over tiles, and its GROUP_SIZE_M is 8.
    """

    on_request = True  # its kernel is not the one that was timed
    example = (_SPACE, Config(_TILE))
    example_problems = ("16x4096x4096:bf16:nt", "2048x4096x4096:bf16:nt", "64x512x4096:bf16:nt:addmm")

    def export(self, table: Table) -> Mapping[str, str]:
        """Export a bucket per range, or per row where an (n, k) has no ranges.

        Returns:
            The text of each file, by name.

        Raises:
            TableError: vLLM runs no such product, two products have one (n, k), or rows of one add in several orders or
                have several BLOCK_K, where vLLM has one.
        """
        buckets: defaultdict[Problem, dict[int, Config]] = defaultdict(dict)
        ranged = {row.problem.bits_series for row in table.ranges}
        for row in table.rows:
            _require_served(gemm(row.problem), row.choices[0].space)
            if row.problem.bits_series not in ranged:
                buckets[gemm(row.problem).bits_series][row.problem.size] = row.choices[0].config
        for each in table.ranges:
            _require_served(gemm(each.problem), each.choice.space)
            buckets[gemm(each.problem).bits_series][each.last] = each.choice.config
        require_one_summation(table)
        rows: dict[str, dict[str, object]] = {}
        for problem, of_size in sorted(buckets.items(), key=lambda item: item[0].name):
            key = f"{problem.n}x{problem.k}"
            if key in rows:
                raise TableError(f"another product has n={problem.n} and k={problem.k}: export one")
            blocks = {config.integer("BLOCK_K") for config in of_size.values()}
            if len(blocks) > 1:
                several = ", ".join(map(str, sorted(blocks)))
                raise TableError(
                    f"n={problem.n}, k={problem.k} has BLOCK_K {several}, and vLLM one: tune with --one-block-k"
                )
            tiles = [[m, [config.integer(name) for name in TILE]] for m, config in sorted(of_size.items())]
            rows[key] = {"block_k": blocks.pop(), "buckets": tiles}
        files = package("gemmtune.engine.consumers.serving.invariant.vllm_plugin")
        return {
            f"{CONSUMER}_table.json": sealed_json(table, SCHEMA, {"rows": rows}, parse_invariant_table),
            **{f"{_PACKAGE}/{name}": text for name, text in files.items()},
            f"{_PACKAGE}-0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {_PACKAGE}\nVersion: 0\n",
            f"{_PACKAGE}-0.dist-info/entry_points.txt": (f"[vllm.general_plugins]\n{_PACKAGE} = {_PACKAGE}:register\n"),
        }


def _require_served(problem: Problem, space: str) -> None:
    """Refuse a product that vLLM's batch-invariant layers do not compute, and kernels of other spaces."""
    types = {problem.a_dtype, problem.b_dtype, problem.out_dtype}
    plain = not problem.epilogue and problem.bias in (Bias.NONE, Bias.VECTOR) and not problem.op.is_batched
    if space != _SPACE or types != {DType.BF16} or not plain or problem.is_strided or problem.b_layout != "t":
        served = f"16x4096x4096:bf16:nt, also with a bias, by {_SPACE}"
        raise TableError(f"{problem.name} by {space}: vLLM's batch-invariant product is {served}: {_WAY_OUT}")
