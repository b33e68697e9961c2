"""Space of NVIDIA's CuTe GEMMs: the operators that the dispatcher of nvidia-cutlass-operators calls."""

from collections.abc import Mapping
from functools import lru_cache, partial
from math import gcd, log2
from pathlib import Path

from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.gemm.problem import Problem, gemm
from gemmtune.engine.records.gemm.terms import Accumulation, Op
from gemmtune.engine.records.search import Prior
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.kernel_call import RUNTIME_PACKAGES, Argument
from gemmtune.engine.seams.space import Launchable, Space
from gemmtune.engine.toolchain.versions import toolchain_of
from gemmtune.spaces.common.operand_rows import operand_rows, usual
from gemmtune.spaces.cute.clustered_tile import ClusteredTile
from gemmtune.spaces.cute.families import FAMILIES, families_of
from gemmtune.spaces.cute.rules import COPY_BYTES, design_exists, operands_fit
from gemmtune.spaces.matmul_heuristics.model import Shape, prior_of, proposed_configs

_BY_NAME = {family.name: family for family in FAMILIES}
_CLUSTER_SIDES = (1, 2, 4, 8, 16)
_SCHEDULERS = ("clc", "none", "static")

# (operator, mma_tiler_m, mma_tiler_n, cluster_shape_m, cluster_shape_n, use_2cta_instrs): the largest tiles, which load
# least per operation, in clusters that share operands; and smaller tiles for problems that do not fill a GPU. This
# argument chose them, not a measurement. Each is an operator of the registry; `seeds` keeps those that serve a problem.
_DEFAULTS = (
    ("PersistentDenseGemmOperator", 256, 256, 2, 1, True),
    ("PersistentDenseGemmOperator", 256, 128, 2, 1, True),
    ("PersistentDenseGemmOperator", 256, 256, 4, 1, True),
    ("PersistentDenseGemmOperator", 128, 256, 1, 1, False),
    ("PersistentDenseGemmOperator", 128, 128, 1, 1, False),
    ("PersistentDenseGemmOperator", 128, 64, 1, 1, False),
    ("PersistentDenseGemmOperator", 64, 64, 1, 1, False),
    ("PersistentDenseGemmOperator", 64, 32, 1, 1, False),
    ("PersistentDenseGemmPreferredClusterOperator", 256, 256, 4, 2, True),
    ("PersistentDenseGemmEFCOperator", 256, 128, 2, 1, True),
    ("TgvGemmOperator", 64, 32, 1, 1, False),
    ("TgvGemmOperator", 64, 16, 1, 1, False),
    ("TgvGemmOperator", 64, 8, 1, 1, False),
    ("Sm90StaticPersistentGemmOperator", 128, 256, 2, 1, False),
    ("Sm90StaticPersistentGemmOperator", 128, 256, 1, 1, False),
    ("Sm90StaticPersistentGemmOperator", 128, 128, 2, 1, False),
    ("Sm90StaticPersistentGemmOperator", 128, 128, 1, 1, False),
    ("Sm90StaticPersistentGemmOperator", 64, 256, 1, 1, False),
    ("Sm90StaticPersistentGemmOperator", 64, 128, 1, 1, False),
    ("Sm90StaticPersistentGemmOperator", 64, 64, 1, 1, False),
    ("Sm80TensorOpGemmOperator", 128, 128, 1, 1, False),
)
_SWAPPED = "TgvGemmOperator"  # the m of its tile lies along n
_UNMODELLED = (_SWAPPED, "Sm80TensorOpGemmOperator")  # nvMatmulHeuristics models the kernels of CUTLASS 3


class CuteGemmSpace(Space):
    """Operators of cutlass.operators in CuTe DSL for sm_90a and sm_100a, by class, tile, cluster and scheduler.

    The names are those of NVIDIA's tuning guide, the values those of the operator's design metadata; False and `none`
    replace fields that a design lacks. A binary serves all sizes, so problems of equal types and layouts share it.
    A dynamic m has the kernels of a static one.
    """

    preload = ("gemmtune.spaces.cute.build",)
    needs = RUNTIME_PACKAGES
    compiled_packages = ("nvidia-cutlass-operators",)

    def params(self, task: Task) -> tuple[Param, ...]:
        """Return the parameters in which the operators of the device's generation differ."""
        families = families_of(task.device)
        tiles_m = {m for family in families for tiles in family.tiles_m.values() for m in tiles}
        tiles_n = {n for family in families for n in family.tiles_n}
        side = max(family.largest_cluster_side for family in families)
        sides = tuple(blocks for blocks in _CLUSTER_SIDES if blocks <= side)
        pairs = {pair for family in families for pair in family.tiles_m}
        schedulers = {name for family in families for name in family.schedulers}
        return (
            Param("operator", tuple(family.name for family in families), ordered=False),
            Param("mma_tiler_m", tuple(sorted(tiles_m))),
            Param("mma_tiler_n", tuple(sorted(tiles_n))),
            Param("cluster_shape_m", sides),
            Param("cluster_shape_n", sides),
            Param("use_2cta_instrs", tuple(sorted(pairs))),
            Param("use_tma_store", tuple(sorted({family.tma_store for family in families}))),
            Param("tile_scheduler", tuple(name for name in _SCHEDULERS if name in schedulers), ordered=False),
        )

    def check(self, task: Task, config: Config) -> Verdict:
        """Reject problems that the operator cannot serve, and designs that the registry does not list."""
        problem = gemm(task.problem)
        if not (verdict := _serves(problem, task.space)):
            return verdict
        name = str(config["operator"])
        family = _BY_NAME[name]
        if task.device.capability[0] not in family.capabilities:
            return Verdict.no("generation", f"{name} is not compiled for {task.device.arch}")
        return operands_fit(problem, family) and design_exists(family, config)

    def seeds(self, task: Task) -> tuple[Config, ...]:
        """Return the proposals of nvMatmulHeuristics, if it is installed, and then the usual shapes.

        The proposals keep their order; the usual shapes are sorted by the operand traffic of the busiest SM.
        """
        usual = [seed for default in _DEFAULTS if self.check(task, seed := _config(*default))]
        usual.sort(key=partial(_busiest_sm_traffic, task))
        return tuple(dict.fromkeys((*proposed_configs(task, self._feasible(task), partial(_modelled, task)), *usual)))

    def prior(self, task: Task) -> Prior:
        """Return the times that nvMatmulHeuristics estimates for the operators it models."""
        return prior_of(task, self._feasible(task), partial(_modelled, task))

    def features(self, task: Task, config: Config) -> Mapping[str, float]:
        """Return how clusters and tiles fit the problem and the GPU, and the logarithm of the estimated time."""
        rows, columns = config.integer("mma_tiler_m"), config.integer("mma_tiler_n")
        cluster_m, cluster_n = config.integer("cluster_shape_m"), config.integer("cluster_shape_n")
        if config["use_2cta_instrs"]:
            rows //= 2
        if config["operator"] == _SWAPPED:
            rows, columns, cluster_m, cluster_n = columns, rows, cluster_n, cluster_m
        tile = ClusteredTile(rows, columns, cluster_m, cluster_n).features(task)
        estimates, slowest = _estimates(task)
        return {**tile, "estimate": estimates.get(config, slowest)}

    def toolchain(self) -> Toolchain:
        """Return the versions of the DSL, which compiles, of the registry, and of TVM-FFI, which launches."""
        return toolchain_of(*RUNTIME_PACKAGES, "nvidia-cutlass-operators", extra="cute")

    def build(self, task: Task, config: Config, folder: Path) -> Artifact:
        """Find the operator in the registry and cross-compile it for the task's device."""
        from gemmtune.spaces.cute.build import build

        return build(self, task, config, folder)

    def deployed_call(self, artifact: Artifact, task: Task) -> list[Argument]:
        """Return the operands, the output and the stream, in the order of the operator's class."""
        return list(str(dict(artifact.launch)["arguments"]).split())

    def load(self, artifact: Artifact, task: Task) -> Launchable:
        """Link the object and call it through TVM-FFI."""
        from gemmtune.spaces.cute.artifact import CuteKernel

        return CuteKernel(artifact, self.deployed_call(artifact, task), gemm(task.problem).argument_names)

    def artifact_key(self, task: Task, config: Config) -> str:
        """Return all that a binary depends on: target, types, layouts, alignments, design and clusters of the grid.

        These tell kernels apart in the kernel cache of NVIDIA's guide too. The sizes are arguments of the kernel.
        """
        problem, device = gemm(task.problem), task.device
        clusters = device.max_active_clusters(config.integer("cluster_shape_m") * config.integer("cluster_shape_n"))
        types = f"{problem.a_dtype}.{problem.b_dtype}.{problem.out_dtype}.{problem.acc_dtype}"
        layouts = f"{problem.a_layout}{problem.b_layout}"
        aligned = ".".join(str(gcd(row.nbytes, COPY_BYTES)) for row in operand_rows(problem).values())
        return f"{task.space}/{device.arch}/{types}/{layouts}/{aligned}/{clusters}/{config.digest}"

    def _feasible(self, task: Task) -> list[Config]:
        return [config for config in self.points(task) if self.check(task, config)]


@lru_cache(maxsize=64)  # thousands of configs of a task are checked in a row
def _serves(problem: Problem, space: str) -> Verdict:
    """Return whether an operator of some generation computes the problem, whatever its types and sizes are."""
    if problem.scaling is not None:
        return Verdict.no(
            "scales", f"cute_gemm's operators multiply no scales, as in {problem.epilogue}: take quack_gemm"
        )
    if problem.op is not Op.MM or problem.epilogue:
        return Verdict.no(
            "operation", f"cute_gemm serves a plain mm, not {problem.op} with epilogue {problem.epilogue}"
        )
    if problem.accumulation is Accumulation.EXACT:
        return Verdict.no("accumulation", "cute_gemm sums 8-bit floats fast, and the problem wants exact sums")
    return usual(problem, space, takes_views=False)


@lru_cache(maxsize=256)
def _estimates(task: Task) -> tuple[Mapping[Config, float], float]:
    """Return log2 of each config's estimated time over the best, and the slowest, which stands for all others."""
    times = CuteGemmSpace().prior(task).times_ns
    fastest = min(times.values(), default=1.0)
    found = {config: log2(time / fastest) for config, time in times.items()}
    return found, max(found.values(), default=0.0)


def _config(operator: str, tile_m: int, tile_n: int, cluster_m: int, cluster_n: int, pair: bool) -> Config:
    family = _BY_NAME[operator]
    return Config(
        {
            "operator": operator,
            "mma_tiler_m": tile_m,
            "mma_tiler_n": tile_n,
            "cluster_shape_m": cluster_m,
            "cluster_shape_n": cluster_n,
            "use_2cta_instrs": pair,
            "use_tma_store": family.tma_store,
            "tile_scheduler": family.schedulers[0],
        }
    )


def _modelled(task: Task, config: Config) -> Shape | None:
    """Return the config's shape as nvMatmulHeuristics counts it, in CTAs, or None if it does not model the kernel.

    On Blackwell the model takes an even cluster_m for pairs of CTAs that share the operator's tile, so it has no such
    cluster without pairs. Source: cutlass.operators 0.3.0, heuristics/nvmatmul/_mapping.py.
    """
    if config["operator"] in _UNMODELLED:
        return None
    tile_m, cluster_m = config.integer("mma_tiler_m"), config.integer("cluster_shape_m")
    pair = bool(config["use_2cta_instrs"])
    if task.device.capability[0] >= 10 and pair is not (cluster_m % 2 == 0):
        return None
    tile_m //= 2 if pair else 1
    return Shape(tile_m, config.integer("mma_tiler_n"), cluster_m, config.integer("cluster_shape_n"))


def _busiest_sm_traffic(task: Task, config: Config) -> int:
    """Return the operand elements that the busiest SM loads per two steps of k."""
    tile_m, tile_n = config.integer("mma_tiler_m"), config.integer("mma_tiler_n")
    rows, columns = (tile_n, tile_m) if config["operator"] == _SWAPPED else (tile_m, tile_n)
    tiles = -(-gemm(task.problem).m // rows) * -(-gemm(task.problem).n // columns)
    blocks = 2 if config["use_2cta_instrs"] else 1  # a pair shares a tile and its loads
    waves = -(-tiles * blocks // task.device.sm_count)
    return waves * (tile_m + tile_n) * 2 // blocks
