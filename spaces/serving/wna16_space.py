"""The base class of the spaces of engines' fused mixture-of-experts kernel for GPTQ and AWQ models."""

from collections.abc import Mapping

from gemmtune.engine.consumers.serving.contract.wna16_layer import Wna16Layer
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.toolchain.triton_tiles import least_converted_bytes
from gemmtune.spaces.common.tile_limits import fits_in_shared_memory
from gemmtune.spaces.serving.moe_operands import FIRST, SECOND, tensors
from gemmtune.spaces.serving.moe_space import MoeSpace
from gemmtune.spaces.serving.rules import TILE, TILE_PARAMS, column_blocks, fits, tile
from gemmtune.spaces.triton_source.launches import Argument, KernelLaunch

_ARGUMENTS = (
    "a_ptr b_ptr c_ptr b_scale_ptr b_zp_ptr topk_weights_ptr sorted_token_ids_ptr expert_ids_ptr "
    "num_tokens_post_padded_ptr EM num_valid_tokens stride_am stride_ak stride_be stride_bk stride_bn stride_cm "
    "stride_cn stride_bse stride_bsk stride_bsn stride_bze stride_bzk stride_bzn"
)
"""Run-time arguments of both engines' kernel, in order."""
_DEPTHS = (32, 64, 128, 256)
"""Values of BLOCK_SIZE_K: those of the engines' tuner, and 32, which both run where they have no tuned file."""


class Wna16Space(MoeSpace):
    """Tile, order and pipeline of both grouped GEMMs. The sizes of the weights are compiled in."""

    functions = ("write_zeros_to_output", "fused_moe_kernel_gptq_awq")

    def params(self, task: Task) -> tuple[Param, ...]:
        """Return the parameters of the engine's own tuner, and shallower tiles."""
        return tuple(Param(each.name, _DEPTHS) if each.name == "BLOCK_SIZE_K" else each for each in TILE_PARAMS)

    def shared_bytes(self, task: Task, config: Config, itemsizes: tuple[int, int]) -> int:
        """Return the shared memory that a block needs at least, in bytes."""
        staged, stages = self.layer(task).dtype.packed == 1, config.integer("num_stages")
        return least_converted_bytes(task.device.capability, tile(config), stages, staged=staged)

    def check(self, task: Task, config: Config) -> Verdict:
        """Reject tiles that read beyond a weight, are of no use, or do not fit."""
        block_k = tile(config)[2]
        for _, depth in self.layer(task).products:
            if depth % block_k:
                return Verdict.no(
                    "BLOCK_SIZE_K cuts k",
                    f"BLOCK_SIZE_K {block_k} does not divide k={depth}, and the kernel reads weights without a mask",
                )
        layer, itemsizes = self.layer(task), (2, 0)
        depth = max(layer.hidden, layer.inter)
        of_use = fits(task, config, itemsizes, rows=layer.tokens, depth=depth, scaled=0, swaps=False)
        needed = self.shared_bytes(task, config, itemsizes)
        return of_use and fits_in_shared_memory(task, needed, config.integer("num_stages"))

    def product_of(
        self,
        task: Task,
        config: Config,
        which: int,
        padded: int,
        unlike: Mapping[str, Argument],
        constants: Mapping[str, object],
    ) -> KernelLaunch:
        """Return the launch of one product.

        Args:
            task: layer and device.
            config: config of the kernel.
            which: product to launch.
            padded: sorted row numbers, with each expert's padding.
            unlike: run-time arguments that one engine passes otherwise.
            constants: constexpr arguments that one engine alone has.
        """
        layer = self.layer(task)
        assert isinstance(layer, Wna16Layer)
        block_m, (n, k), packed = config.integer("BLOCK_SIZE_M"), layer.products[which], layer.dtype.packed
        columns, groups = k // packed, k // layer.group
        zeros = (n // packed * groups, 1, groups) if layer.zeros else (0, 0, 0)
        strides = {"am": k, "ak": 1, "be": n * columns, "bk": 1, "bn": columns, "cm": n, "cn": 1}
        strides |= {"bse": n * groups, "bsk": 1, "bsn": groups, **dict(zip(("bze", "bzk", "bzn"), zeros, strict=True))}
        arguments: dict[str, Argument] = {**tensors(layer, which, block_m), "EM": padded}
        arguments |= {"num_valid_tokens": layer.rows, **{f"stride_{name}": value for name, value in strides.items()}}
        arguments |= unlike
        return KernelLaunch(
            function=self.functions[-1],
            arguments={name: arguments[name] for name in _ARGUMENTS.split()},
            constants={
                "N": n,
                "K": k,
                "group_size": layer.group,
                **{name: config[name] for name in TILE},
                "MUL_ROUTED_WEIGHT": which == SECOND,
                "top_k": layer.top_k if which == FIRST else 1,
                "compute_type": "tl.bfloat16",
                "has_zp": bool(layer.zeros),
                "use_int4_w4a16": packed == 2,
                "use_int8_w8a16": packed == 1,
                **constants,
            },
            grid=(-(-padded // block_m) * column_blocks(n, config), 1, 1),
            num_warps=config.integer("num_warps"),
            num_stages=config.integer("num_stages"),
            unaligned=frozenset({"EM", "num_valid_tokens"}),  # they change from step to step, and enter masks alone
        )
