"""The base class of the spaces of engines' fused mixture-of-experts kernels."""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence

from gemmtune.engine.consumers.serving.contract.file_name import Kernel
from gemmtune.engine.consumers.serving.contract.moe_layer import MoeLayer, MoeType
from gemmtune.engine.consumers.serving.contract.tuned_file import moe_swaps
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.spaces.serving.engine_space import EngineSpace
from gemmtune.spaces.serving.moe_operands import FIRST, SECOND, scale_strides, tensors
from gemmtune.spaces.serving.rules import TILE, TILE_PARAMS, column_blocks, fits, serves_fp8, tile
from gemmtune.spaces.triton_source.launches import Argument, KernelLaunch

_FLAT = 8
"""Rows of the flattest tile, which files of vLLM have on sm_90 in fp8, for up to 4 tokens."""


class MoeSpace(EngineSpace):
    """Tile, order and pipeline of both grouped GEMMs of a layer, which one config serves."""

    kernel = Kernel.MOE
    functions = ("write_zeros_to_output", "fused_moe_kernel")

    def launches(self, task: Task, config: Config) -> Sequence[KernelLaunch]:
        """Return both launches of the engine's kernel, in order."""
        return [self.launch(task, config, which) for which in (FIRST, SECOND)]

    @abstractmethod
    def launch(self, task: Task, config: Config, which: int) -> KernelLaunch:
        """Return the launch of one product, as the engine makes it."""

    def params(self, task: Task) -> tuple[Param, ...]:
        """Return the parameters of the engine's own tuner, with tiles of 8 rows where vLLM's files have them."""
        rows, *others = TILE_PARAMS
        is_flat = task.device.capability == (9, 0) and self.layer(task).dtype.is_fp8
        return (Param(rows.name, (_FLAT, *rows.values)), *others) if is_flat else TILE_PARAMS

    def check(self, task: Task, config: Config) -> Verdict:
        """Reject tiles that are clamped, of no use, or do not fit."""
        layer = self.layer(task)
        if layer.dtype.is_fp8 and not (served := serves_fp8(task)):
            return served
        return fits(
            task,
            config,
            layer.dtype.itemsizes,
            rows=layer.tokens,
            depth=max(layer.hidden, layer.inter),
            scaled=layer.deepest_tile,
            swaps=self.swaps(task, config),
        )

    def features(self, task: Task, config: Config) -> Mapping[str, float]:
        """Return how both products fill the GPU, what padding costs, and how much the pipeline holds."""
        layer, (block_m, _, block_k) = self.layer(task), tile(config)
        active = max(1.0, layer.active_experts)
        row_blocks = active * math.ceil(layer.rows / active / block_m)
        found = {
            "filled rows": layer.rows / (row_blocks * block_m),
            **self.tile_features(task, config, layer.dtype.itemsizes),
        }
        held = task.device.sm_count * self.resident(task, config, layer.dtype.itemsizes)[0]
        for number, (columns, depth) in enumerate(layer.products):
            found[f"waves {number}"] = math.log2(row_blocks * column_blocks(columns, config) / held)
            found[f"steps {number}"] = math.log2(max(1, depth // block_k))
        return found

    def swaps(self, task: Task, config: Config) -> bool:
        """Return whether the engine swaps A and B for this tile."""
        block_m, block_n, _ = tile(config)
        return self.layer(task).dtype.is_fp8 and moe_swaps(task.device.capability, block_m, block_n)

    def layer(self, task: Task) -> MoeLayer:
        """Return the task's layer."""
        assert isinstance(task.problem, MoeLayer)
        return task.problem

    def product(
        self,
        layer: MoeLayer,
        config: Config,
        which: int,
        padded: int,
        names: str,
        *,
        unlike: Mapping[str, Argument],
        constants: Mapping[str, object],
    ) -> KernelLaunch:
        """Return the launch of one product.

        Args:
            layer: layer of the task.
            config: config of the kernel.
            which: product to launch.
            padded: sorted row numbers, with each expert's padding.
            names: run-time arguments in the kernel's order, with spaces between.
            unlike: run-time arguments that one engine alone has, or passes otherwise.
            constants: constexpr arguments that one engine alone has.
        """
        block_m, (n, k) = config.integer("BLOCK_SIZE_M"), layer.products[which]
        sizes = {"N": n, "K": k, "EM": padded, "num_valid_tokens": layer.rows}
        strides = {"am": k, "ak": 1, "be": n * k, "bk": 1, "bn": k, "cm": n, "cn": 1, **scale_strides(layer, which)}
        arguments: dict[str, Argument] = {**tensors(layer, which, block_m), **sizes}
        arguments |= {**{f"stride_{name}": value for name, value in strides.items()}, **unlike}
        group_n, group_k = layer.scale_block or (0, 0)
        quantised = {"use_fp8_w8a8": layer.dtype.is_fp8, "use_int8_w8a16": layer.dtype is MoeType.INT8_W8A16}
        quantised |= dict.fromkeys(("use_int8_w8a8", "per_channel_quant"), False)
        return KernelLaunch(
            function="fused_moe_kernel",
            arguments={name: arguments[name] for name in names.split()},
            constants={
                "group_n": group_n,
                "group_k": group_k,
                **{name: config[name] for name in TILE},
                "MUL_ROUTED_WEIGHT": which == SECOND,
                "top_k": layer.top_k if which == FIRST else 1,
                "compute_type": "tl.float16" if layer.dtype is MoeType.FP16 else "tl.bfloat16",
                **quantised,
                **constants,
            },
            grid=(-(-padded // block_m) * column_blocks(n, config), 1, 1),
            num_warps=config.integer("num_warps"),
            num_stages=config.integer("num_stages"),
            unaligned=frozenset({"EM", "num_valid_tokens"}),  # they change from step to step, and enter masks alone
        )
