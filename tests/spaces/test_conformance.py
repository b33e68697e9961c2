from __future__ import annotations

import hashlib
from importlib.util import find_spec

import pytest

from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.errors import ContractError
from gemmtune.engine.records.search import Prior
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.space import BuildError, Space
from gemmtune.engine.testing import space_conformance
from gemmtune.engine.testing.space_conformance import check_build, example_tasks

pytestmark = pytest.mark.slow(20)

ALIKE = (
    *("sglang_block_fp8_shipped", "sglang_moe_shipped", "vllm_block_fp8_shipped"),
    *("sglang_moe_wna16", "sglang_moe_wna16_shipped", "vllm_moe_wna16_shipped"),
)
"""Spaces that share all they do with `vllm_moe_shipped`, or with `vllm_moe_wna16`."""
OF_USERS = ("triton_default", "triton_kernel")
"""Spaces whose params stand in a user's file; see test_triton_kernel.py."""
BUILT = {"aten": (1, 2, 4, 5, 9, 11, 12), "triton_mm": (1, 9, 11, 12), "decompose_k": (14,)}
"""Spaces of ours, with places in `example_tasks`: mm (in `aten` several), addmm, bmm, dynamic m, long k."""


@pytest.mark.parametrize("check", space_conformance.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", [name for name in registry.names(Space) if name not in (*ALIKE, *OF_USERS)])
def test_registered_space_keeps_the_contract(name, check):
    check(type(registry.space(name)))


@pytest.mark.parametrize(
    ("name", "number"),
    [(name, number) for name in BUILT for number in BUILT[name] if registry.space(name).seeds(example_tasks()[number])],
)
def test_a_space_of_ones_own_keeps_the_contract_of_builds(name, number, tmp_path):
    if find_spec("torch") is None or find_spec("triton") is None:
        pytest.skip("torch or triton is not installed")
    space, task = registry.space(name), example_tasks()[number]
    artifact = check_build(type(space), task, space.seeds(task)[0], tmp_path)
    assert artifact.key == space.artifact_key(task, space.seeds(task)[0])


class Toy(Space):
    """Eight tiles, odd ones refused; the binary is its config's text."""

    def params(self, task):
        return (Param("TILE", (1, 2, 3, 4, 5, 6, 7, 8)),)

    def check(self, task, config):
        tile = config.integer("TILE")
        return Verdict.no("even", f"TILE {tile} is odd") if tile % 2 else Verdict.yes()

    def seeds(self, task):
        return (Config({"TILE": 4}),)

    def toolchain(self):
        return Toolchain((("toy", "1.0"),))

    def build(self, task, config, folder):
        if config.integer("TILE") > 8:
            raise BuildError(f"TILE {config['TILE']} > 8")
        return self._artifact(task, config, folder, config.json.encode())

    def _artifact(self, task, config, folder, binary, digest=None):

        path = folder / "kernel.bin"
        path.write_bytes(binary)
        digest = digest or hashlib.sha256(binary).hexdigest()
        return Artifact(self.artifact_key(task, config), task.space, str(path), digest, (), None, 0.0, self.toolchain())

    def load(self, artifact, task):
        raise NotImplementedError


class TwiceTheValue(Toy):
    def params(self, task):
        return (Param("TILE", (1, 2, 2, 4)),)


class Descending(Toy):
    def params(self, task):
        return (Param("TILE", (8, 4, 2, 1)),)


class OffItsParams(Toy):
    def points(self, task):
        yield Config({"TILE": 9})


class BareNo(Toy):
    def check(self, task, config):
        return config.integer("TILE") % 2 == 0


class ValueInTheRule(Toy):
    def params(self, task):
        return (Param("TILE", tuple(range(1, 101))),)

    def check(self, task, config):
        tile = config.integer("TILE")
        return Verdict.no(f"odd {tile}", f"TILE {tile} is odd") if tile % 2 else Verdict.yes()


class NeverContent(Toy):
    def check(self, task, config):
        return Verdict.no("mood", "not today")


class InfeasibleSeed(Toy):
    def seeds(self, task):
        return (Config({"TILE": 3}),)


class OneKey(Toy):
    def artifact_key(self, task, config):
        return "toy"


class SilentPrior(Toy):
    def prior(self, task):
        return Prior()


class NamelessModel(Toy):
    def prior(self, task):
        return Prior({Config({"TILE": 2}): 1000.0})


class FreeLunch(Toy):
    def prior(self, task):
        return Prior({Config({"TILE": 2}): 0.0}, "toy 1.0")


class InfeasiblePrior(Toy):
    def prior(self, task):
        return Prior({Config({"TILE": 3}): 1000.0}, "toy 1.0")


class ChangesItsMind(Toy):
    asked = 0

    def prior(self, task):
        ChangesItsMind.asked += 1
        return Prior({Config({"TILE": 2}): 1000.0 + ChangesItsMind.asked}, "toy 1.0")


class Estimated(Toy):
    def prior(self, task):
        return Prior({Config({"TILE": 2}): 1000.0}, "toy 1.0")


class Remembers(Toy):
    seen = 0

    def check(self, task, config):
        Remembers.seen += 1
        return Verdict.no("count", f"asked {Remembers.seen} times") if config["TILE"] == 1 else Verdict.yes()


class CachesVerdicts(Toy):
    def check(self, task, config):
        self.last = config
        return super().check(task, config)


class Blurred(Toy):
    def toolchain(self):
        return Toolchain((("toy", "1.0"), ("a", "2")))


class PreloadsNothing(Toy):
    preload = ("no_such_module_at_all",)


@pytest.mark.parametrize(
    ("space", "check", "broken"),
    [
        (TwiceTheValue, space_conformance.spans_its_params, "TILE has value 2 twice"),
        (Descending, space_conformance.spans_its_params, "ordered and not ascending"),
        (OffItsParams, space_conformance.has_points_of_its_params, "not of its params"),
        (BareNo, space_conformance.explains_every_rejection, "not with a Verdict"),
        (ValueInTheRule, space_conformance.explains_every_rejection, "51 rules"),
        (NeverContent, space_conformance.explains_every_rejection, "rejects every point"),
        (InfeasibleSeed, space_conformance.has_feasible_seeds, "rejects its seed .* TILE 3 is odd"),
        (SilentPrior, space_conformance.estimates_feasible_configs, "0 estimates by '', reason ''"),
        (NamelessModel, space_conformance.estimates_feasible_configs, "1 estimates by '', reason ''"),
        (FreeLunch, space_conformance.estimates_feasible_configs, r"estimates Config\(TILE=2\) at 0.0 ns"),
        (InfeasiblePrior, space_conformance.estimates_feasible_configs, r"Config\(TILE=3\), which is not feasible"),
        (ChangesItsMind, space_conformance.is_stateless, "the second time"),
        (OneKey, space_conformance.gives_each_config_its_key, "one artifact key"),
        (Remembers, space_conformance.is_stateless, "the second time"),
        (CachesVerdicts, space_conformance.is_stateless, "must keep no state"),
        (Blurred, space_conformance.names_its_toolchain, "toolchain"),
        (PreloadsNothing, space_conformance.preloads_what_exists, "no_such_module_at_all"),
    ],
)
def test_suite_catches_a_broken_space(space, check, broken):
    with pytest.raises(ContractError, match=broken):
        check(space)


class RandomBytes(Toy):
    def build(self, task, config, folder):
        super().build(task, config, folder)
        return self._artifact(task, config, folder, str(folder).encode())


class WrongDigest(Toy):
    def build(self, task, config, folder):
        return self._artifact(task, config, folder, b"kernel", digest="0" * 64)


class Litters(Toy):
    def build(self, task, config, folder):
        (folder / "kernel.ptx").write_text("left")
        return super().build(task, config, folder)


class AnotherError(Toy):
    def build(self, task, config, folder):
        if config.integer("TILE") > 8:
            raise KeyError(config["TILE"])
        return super().build(task, config, folder)


class BuildsAnything(Toy):
    def build(self, task, config, folder):
        return self._artifact(task, config, folder, config.json.encode())


@pytest.mark.parametrize(
    ("space", "broken"),
    [
        (RandomBytes, "4 times into 4 binaries"),
        (WrongDigest, "gave the digest 000"),
        (Litters, r"left .*kernel\.ptx"),
        (AnotherError, r"raised KeyError\(1000009\), not BuildError"),
        (BuildsAnything, r"built Config\(TILE=1000009\)"),
    ],
)
def test_build_check_catches_a_broken_build(space, broken, tmp_path):
    with pytest.raises(ContractError, match=broken):
        check_build(space, example_tasks()[0], Config({"TILE": 4}), tmp_path)


def test_suite_accepts_a_right_space(tmp_path):
    for check in space_conformance.CHECKS:
        if check is not space_conformance.describes_itself_lightly:  # it imports the class by name: not from here
            check(Toy)
            check(Estimated)
    assert check_build(Toy, example_tasks()[0], Config({"TILE": 4}), tmp_path).digest
