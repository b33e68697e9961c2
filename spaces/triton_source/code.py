"""Triton kernels of one config as text. Imports Triton."""

import re
from pathlib import Path

from gemmtune.engine.records.artifact import KernelCode
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.space import Space
from gemmtune.spaces.triton_source.compiler import kept_ptx

_ENTRY = re.compile(r"^\.visible \.entry (\w+)", re.MULTILINE)


def triton_code(space: Space, task: Task, config: Config, folder: Path, script: str = "") -> KernelCode:
    """Build the config and return its PTX, with its script if there is one; raises BuildError if it cannot be built."""
    with kept_ptx() as texts:
        space.build(task, config, folder)
    ptx = "\n".join(dict.fromkeys(texts))
    return KernelCode(script, tuple(_ENTRY.findall(ptx)), ptx)
