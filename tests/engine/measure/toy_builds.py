"""A space whose builds go wrong in every way; the builder's tests install it as a distribution of its own."""

from __future__ import annotations

import hashlib
import os
import time

from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.space import BuildError, Space

ENDS = ("builds", "refuses", "raises", "exits", "hangs")


class ToyBuilds(Space):
    def params(self, task):
        return (Param("end", ENDS, ordered=False),)

    def check(self, task, config):
        return Verdict.yes()

    def seeds(self, task):
        return (Config({"end": "builds"}),)

    def toolchain(self):
        return Toolchain((("toy", "1.0"),))

    def build(self, task, config, folder):
        match config["end"]:
            case "refuses":
                raise BuildError("needs 300000 B of shared memory > 232448 B a block")
            case "raises":
                raise KeyError("BLOCK_M")
            case "exits":
                os._exit(9)
            case "hangs":
                time.sleep(300)
        text = f"{config.json} {os.environ.get('CUDA_VISIBLE_DEVICES')} niceness {os.nice(0)}"
        path = folder / "toy.bin"
        path.write_text(text)
        digest = hashlib.sha256(text.encode()).hexdigest()
        key = self.artifact_key(task, config)
        return Artifact(key, task.space, str(path), digest, (), None, 0.0, self.toolchain())

    def load(self, artifact, task):
        raise NotImplementedError("the toy has no kernel")
