"""Settings of one build, and the GPU that it is for, which need not be present. Imports torch and triton."""

import contextlib
import os
from collections.abc import Iterator
from unittest.mock import patch

from gemmtune.engine.toolchain.absent_gpu import target
from gemmtune.spaces.triton_source.compiler import compiler_settings

__all__ = ["environment", "target"]


@contextlib.contextmanager
def environment(folder: str) -> Iterator[None]:
    """Set Triton's compiler, and put the caches of both into a private, temporary folder of this build."""
    inductors = patch.dict(os.environ, {"TORCHINDUCTOR_CACHE_DIR": folder})
    with inductors, compiler_settings(os.path.join(folder, "triton")):
        yield
