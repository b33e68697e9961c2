"""Plug-in of vLLM that gives its batch-invariant product the configs of a gemmtune table. Read with vLLM 0.33.0.

vLLM finds the folder's entry point where that is on `sys.path`, and calls `register` in each of its processes:

    VLLM_BATCH_INVARIANT=1 PYTHONPATH=deploy/vllm_batch_invariant vllm serve MODEL

An (n, k) of the table runs its BLOCK_K at every m, and the tile of the bucket that m is in; beyond the last bucket, the
last one's tile. Another (n, k) and another GPU run what vLLM would run. The table is data.
"""

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gemmtune.engine.tables.sealed import (
    parse_sealed,
    read_sealed,
    require_integer,
    require_object,
    require_one_of,
    shortened,
)

__all__ = ["register"]

CONSUMER = "vllm_batch_invariant"
"""Name of the consumer in its table."""
SCHEMA = 1
TILE = ("BLOCK_M", "BLOCK_N", "num_warps", "num_stages")
"""Params of a bucket, in vLLM's order."""
_POWERS = tuple(2**power for power in range(13))
_KNOWN = (_POWERS, _POWERS, _POWERS[:6], range(1, 11))
_LARGEST = 2**31 - 1
_PRODUCT = re.compile(r"([1-9]\d{0,9})x([1-9]\d{0,9})", re.ASCII)
_FAMILIES = {"sm_89": "ada", "sm_90": "hopper", "sm_100": "blackwell", "sm_103": "blackwell", "sm_120": "sm120"}


class InvariantTable(NamedTuple):
    """Content of `vllm_batch_invariant_table.json`, checked field by field."""

    device: str
    """Name of the GPU."""
    family: str
    """vLLM's name of the GPU's generation; empty for one that has no configs in vLLM."""
    rows: Mapping[tuple[int, int], tuple[int, list[tuple[int, list[int]]]]]
    """Block of k and buckets by (n, k); a bucket is its greatest m, and the params of TILE."""


def parse_invariant_table(content: bytes) -> InvariantTable:
    """Return a table from its JSON; refuse an edited one, and a value that Triton would fail on.

    Raises:
        TypeError, ValueError: a part has the wrong type or value.
    """
    fields = parse_sealed(content, CONSUMER, SCHEMA, {"rows"})
    rows: dict[tuple[int, int], tuple[int, list[tuple[int, list[int]]]]] = {}
    for key, entry in require_object("rows", fields["rows"]).items():
        product = _PRODUCT.fullmatch(key)
        if product is None:
            raise ValueError(f"rows: the key {shortened(key)} is no n and k, 4096x4096")
        its = require_object(key, entry, {"block_k", "buckets"})
        buckets: list[tuple[int, list[int]]] = []
        for size, tile in its["buckets"]:
            least = buckets[-1][0] + 1 if buckets else 1
            params = zip(TILE, tile, _KNOWN, strict=True)
            values = [require_one_of(f"{key}.{name}", value, known) for name, value, known in params]
            buckets.append((require_integer(f"{key}.m", size, least, _LARGEST), values))
        block_k = require_one_of(f"{key}.block_k", its["block_k"], _POWERS)
        rows[int(product[1]), int(product[2])] = block_k, buckets
    arch = fields["device"]["arch"].rstrip("af")
    return InvariantTable(fields["device"]["name"], _FAMILIES.get(arch, ""), rows)


def register() -> None:
    """Put the table's configs in the place of vLLM's own; calling it again changes nothing.

    A vLLM without the names that it needs gets a warning, and starts.
    """
    table = read_sealed(Path(__file__).parent.with_name(f"{CONSUMER}_table.json"), parse_invariant_table)
    try:
        _put(table)
    except (ImportError, AttributeError, KeyError, TypeError) as error:
        text = "gemmtune's plug-in does not know this vLLM, whose own configs run: %s"
        logging.getLogger("gemmtune").warning(text, error)


def _put(table: InvariantTable) -> None:
    from vllm.model_executor.determinism import batch_invariant_configs
    from vllm.platforms import current_platform

    vllm: Any = batch_invariant_configs
    if (name := current_platform.get_device_name()) != table.device:
        logging.getLogger("gemmtune").warning("gemmtune's table is for %s; on %s it is not used", table.device, name)
        return
    configs = vllm._BATCH_INVARIANT_MATMUL_TUNED_CONFIGS[table.family]
    for product, (block_k, buckets) in table.rows.items():
        tiles = tuple((size, vllm._MatmulMConfig(*tile)) for size, tile in buckets)
        configs[product] = vllm._MatmulShapeConfig(block_k=block_k, m_buckets=tiles)
