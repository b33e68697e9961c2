from __future__ import annotations

import pytest

from gemmtune.engine.toolchain.triton_tiles import least_shared_bytes


@pytest.mark.parametrize(
    ("capability", "tile", "stages", "itemsize", "rows", "nbytes"),
    [  # as binaries of Triton 3.7 say
        ((9, 0), (64, 32, 256), 5, 2, 64, 245760),
        ((9, 0), (32, 32, 128), 5, 2, 32, 65536),
        ((9, 0), (16, 256, 64), 5, 1, 256, 87040),
        ((9, 0), (256, 256, 256), 5, 1, 256, 655360),
        ((8, 0), (128, 128, 64), 5, 2, 128, 131072),
        ((8, 9), (64, 128, 256), 4, 1, 64, 147456),
        ((10, 0), (64, 128, 128), 3, 2, 64, 147456),
        ((12, 0), (128, 64, 128), 4, 1, 128, 73728),
    ],
)
def test_least_shared_memory_is_that_of_the_binaries(capability, tile, stages, itemsize, rows, nbytes):
    assert least_shared_bytes(capability, tile, stages, (itemsize, itemsize), rows) == nbytes
