"""Configs that QuACK's autotuner tries for a plain GEMM, in its order.

Source: `_get_sm90_configs` and `_get_sm100_configs` in quack/gemm_config.py 0.6.5. Configs with use_tma_gather are left
out, because `prune_invalid_gemm_configs` in quack/gemm_interface.py drops them.
"""

from collections.abc import Collection, Iterable

from gemmtune.engine.records.config import Config

DEFAULT_SWIZZLE = 8
"""Value of max_swizzle_size in every listed config."""

_SM90_TILES = (
    *((256, tile_n, False) for tile_n in (128, 160, 192, 208)),
    *((128, tile_n, False) for tile_n in (224, 256)),
    *((128, tile_n, True) for tile_n in (128, 160, 192, 208)),
    (192, 128, True),
)
"""Tiles and kernel kinds for sm_90: (tile_m, tile_n, pingpong)."""
_SM90_EXACT_TILES = (
    *((128, tile_n, False) for tile_n in (128, 160, 192, 208)),
    (192, 128, False),
    (256, 64, False),
    *((64, tile_n, True) for tile_n in (128, 160, 192, 208)),
)
"""Tiles for exact sums of 8-bit floats, in place of QuACK's, of which most would spill."""
_SM90_NARROW_TILES = tuple((64, tile_n, False) for tile_n in (16, 32, 64, 128))
"""Tiles for few rows of 8-bit floats: their time is that of the operands, which more SMs load faster."""
_SM90_CLUSTERS = ((1, 2), (2, 1))
_SM100_TILES = ((128, (1, 1)), (128, (1, 2)), (128, (2, 1)), (128, (2, 2)), (256, (2, 1)), (256, (2, 2)))
"""Tile rows and clusters for sm_100: (tile_m, cluster), each with every tile_n below."""
_SM100_TILE_N = (16, 32, 64, 128, 160, 192, 224, 256)


def listed(arch: str, *, float8: bool, exact: bool) -> tuple[Config, ...]:
    """Return the configs for `sm_90a` or `sm_100a`; other architectures have none here.

    For 8-bit floats on sm_90a there are tiles of gemmtune's own: narrow ones, and others for `exact` sums.
    """
    own = _sm90(_SM90_NARROW_TILES, ((1, 1), *_SM90_CLUSTERS)) if float8 else ()
    sm90 = _sm90(_SM90_EXACT_TILES if exact else _SM90_TILES, _SM90_CLUSTERS)
    return {"sm_90a": (*sm90, *own), "sm_100a": _sm100()}.get(arch, ())


def _sm90(tiles: Iterable[tuple[int, int, bool]], clusters: Collection[tuple[int, int]]) -> tuple[Config, ...]:
    return tuple(
        _config(tile_m, tile_n, *cluster, pingpong, swap_ab, False)
        for tile_m, tile_n, pingpong in tiles
        for cluster in clusters
        for swap_ab in (False, True)
    )


def _sm100() -> tuple[Config, ...]:
    tiles = [(tile_m, tile_n, cluster) for tile_m, cluster in _SM100_TILES for tile_n in _SM100_TILE_N]
    return tuple(
        _config(tile_m, tile_n, *cluster, False, swap_ab, dynamic)
        for tile_m, tile_n, cluster in [*tiles, (256, 512, (2, 1))]
        for swap_ab in (False, True)
        for dynamic in (True, False)
    )


def _config(*values: int) -> Config:
    names = ("tile_m", "tile_n", "cluster_m", "cluster_n", "pingpong", "swap_ab", "is_dynamic_persistent")
    return Config({**dict(zip(names, values, strict=True)), "max_swizzle_size": DEFAULT_SWIZZLE})
