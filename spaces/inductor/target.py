"""Settings of one build, and the GPU that it is for, which need not be present. Imports torch and triton."""

import contextlib
import os
from collections.abc import Iterator
from threading import RLock
from unittest.mock import patch

from torch.hub import tqdm  # type: ignore[attr-defined] # it exports what tqdm is

from gemmtune.engine.toolchain.absent_gpu import target
from gemmtune.spaces.triton_source.compiler import compiler_settings

__all__ = ["environment", "target"]


@contextlib.contextmanager
def environment(folder: str) -> Iterator[None]:
    """Set Triton's compiler, and put the caches of both into a private, temporary folder of this build.

    The bar of torch's interpreters makes a lock for several processes, which outlives a builder that ends; here it has
    one of threads.
    """
    getattr(tqdm, "set_lock", lambda _: None)(RLock())
    inductors = patch.dict(os.environ, {"TORCHINDUCTOR_CACHE_DIR": folder})
    with inductors, compiler_settings(os.path.join(folder, "triton")):
        yield
