from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints

import pytest

from gemmtune.engine.records.errors import ContractError, UnknownPlugin
from gemmtune.engine.records.measurement import Measurement
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.exporter import Exporter
from gemmtune.engine.seams.objective import Objective
from gemmtune.engine.seams.pruner import Pruner
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.seams.space import Space

KINDS = {
    Space: "gemmtune.spaces",
    Objective: "gemmtune.objectives",
    Sampler: "gemmtune.samplers",
    Pruner: "gemmtune.pruners",
    Exporter: "gemmtune.exporters",
}


class Score(Objective):
    """An objective to be found."""

    protocol = "none"
    unit = "points"

    def score(self, measurement: Measurement) -> float:
        return 1.0


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch):
    """Have these entry points and no others: name to `module:attribute`."""

    def install(group: str, points: dict[str, str]) -> None:
        found = EntryPoints(EntryPoint(name, value, group) for name, value in points.items())
        monkeypatch.setattr(registry, "entry_points", lambda: found)

    return install


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_names_are_those_of_the_seams_own_group(register, kind: type):
    register(KINDS[kind], {"second": "a:B", "first": "c:D"})
    assert registry.names(kind) == ("first", "second")
    assert all(registry.names(other) == () for other in KINDS if other is not kind)


def test_a_name_registered_twice_is_listed_once(register, monkeypatch: pytest.MonkeyPatch):
    twice = EntryPoints(EntryPoint("triton_mm", value, "gemmtune.spaces") for value in ("a:B", "c:D"))
    monkeypatch.setattr(registry, "entry_points", lambda: twice)
    assert registry.names(Space) == ("triton_mm",)


def test_an_unknown_plugin_is_refused_with_the_known_ones(register):
    register("gemmtune.spaces", {"triton_mm": "a:B", "aten": "c:D"})
    with pytest.raises(UnknownPlugin) as caught:
        registry.space("triton")
    assert str(caught.value) == "no space 'triton'; did you mean triton_mm? known: aten, triton_mm"


@pytest.mark.parametrize("kind", ["space", "objective", "sampler", "pruner", "exporter"])
def test_every_seam_refuses_an_unknown_name(kind: str):
    with pytest.raises(UnknownPlugin, match=f"^no {kind} 'nonesuch'; known: "):
        getattr(registry, kind)("nonesuch")


def test_a_plugin_is_found_by_name(register):
    register("gemmtune.objectives", {"points": f"{__name__}:Score"})
    assert registry.names(Objective) == ("points",)


def test_the_loaded_plugin_is_an_instance_of_its_seam(register, monkeypatch: pytest.MonkeyPatch):
    register("gemmtune.objectives", {"points": "somewhere:Score"})
    monkeypatch.setattr(EntryPoint, "load", lambda self: Score)
    assert isinstance(registry.objective("points"), Score)


@pytest.mark.parametrize("value", ["gemmtune.engine.records.config:Config", "gemmtune.engine.seams.registry:names"])
def test_a_plugin_of_another_type_breaks_the_contract(register, value: str):
    register("gemmtune.spaces", {"wrong": value})
    with pytest.raises(ContractError) as caught:
        registry.space("wrong")
    assert str(caught.value) == f"space 'wrong' ({value}) is not a subclass of Space"


def test_a_sampler_is_returned_as_a_class(register):
    register("gemmtune.samplers", {"base": "gemmtune.engine.seams.sampler:Sampler"})
    assert registry.sampler("base") is Sampler


def test_only_the_named_plugin_is_imported(register):
    register("gemmtune.samplers", {"base": "gemmtune.engine.seams.sampler:Sampler", "broken": "no_such_module:Thing"})
    assert registry.sampler("base") is Sampler


def test_a_plugin_that_is_installed_meanwhile_is_found(tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(tmp_path)
    assert "later" not in registry.names(Objective)
    metadata = tmp_path / "later-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: later\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[gemmtune.objectives]\nlater = later:Score\n")
    assert registry.look_up(Objective, "later").value == "later:Score"


def test_installed_packages_are_read_once(monkeypatch: pytest.MonkeyPatch):
    readings = []
    monkeypatch.setattr(registry, "entry_points", lambda: (readings.append(1), EntryPoints())[1])
    assert [registry.names(kind) for kind in KINDS] == [()] * len(KINDS)
    assert len(readings) == 1
