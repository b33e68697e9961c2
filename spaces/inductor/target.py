"""Settings of one build, and the GPU that it is for, which need not be present. Imports torch and triton."""

import contextlib
import os
from collections.abc import Iterator
from unittest.mock import patch

from gemmtune.engine.platform.absent_gpu import target
from gemmtune.engine.platform.ptxas import PTXAS_VARIABLE, current_ptxas
from gemmtune.engine.platform.releases import FP_FUSION_VARIABLE, fp_fusion

__all__ = ["environment", "target"]


@contextlib.contextmanager
def environment(folder: str) -> Iterator[None]:
    """Set Inductor's ptxas, say whether to fuse, and put the caches into a private, temporary folder of this build."""
    values = {
        "TORCHINDUCTOR_CACHE_DIR": folder,
        "TRITON_CACHE_DIR": os.path.join(folder, "triton"),
        FP_FUSION_VARIABLE: str(int(fp_fusion(os.environ))),
    }
    if ptxas := current_ptxas():
        values[PTXAS_VARIABLE] = str(ptxas)
    with patch.dict(os.environ, values):
        yield
