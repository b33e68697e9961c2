"""A space with an analytic model; tests/engine/conftest.py registers it as a distribution of its own."""

from __future__ import annotations

import hashlib

from gemmtune.engine.records.artifact import Artifact, Resources, Toolchain
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.search import Prior
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.space import BuildError, Space


class ToyPriced(Space):
    """Ten tiles. The model knows none of tile 10 and nothing of the L4; its favourite, tile 1, does not build."""

    def params(self, task):
        return (Param("TILE", tuple(range(1, 11))),)

    def check(self, task, config):
        return Verdict.no("tile", "TILE 9 > 8") if config["TILE"] == 9 else Verdict.yes()

    def seeds(self, task):
        return (Config({"TILE": 4}),)

    def prior(self, task):
        if task.device.sku == "L4":
            return Prior(reason="the toy model does not know the NVIDIA L4")
        times_ns = {Config({"TILE": tile}): 1000.0 * tile for tile in range(8, 0, -1)}
        return Prior(times_ns, "toy model 1.0")

    def toolchain(self):
        return Toolchain((("toy", "1.0"),))

    def build(self, task, config, folder):
        tile = config.integer("TILE")
        if tile == 1:
            raise BuildError("TILE 1 needs 300000 B of shared memory > 232448 B a block")
        path = folder / f"{tile}.bin"
        path.write_text(task.device.arch)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        resources = Resources(registers=16 * tile, shared_bytes=1024 * tile, spill_bytes=100 * (tile == 3), threads=128)
        return Artifact(
            self.artifact_key(task, config), task.space, str(path), digest, (), resources, 0.5, self.toolchain()
        )

    def load(self, artifact, task):
        raise NotImplementedError("the toy has no kernel")
