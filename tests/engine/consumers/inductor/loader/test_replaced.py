"""Functions of torch that a table replaces: what the program had put there before, or puts there meanwhile, stays."""

from __future__ import annotations

import copyreg
from unittest.mock import patch

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

from torch._inductor import config  # noqa: E402 (torch is there)
from torch._inductor.choices import InductorChoices  # noqa: E402
from torch._inductor.codegen.common import custom_backend_passes  # noqa: E402
from torch._inductor.codegen.triton import TritonKernel  # noqa: E402
from torch._inductor.fx_passes import pad_mm  # noqa: E402
from torch._inductor.graph import GraphLowering  # noqa: E402
from torch._inductor.lowering import lowerings  # noqa: E402
from torch._inductor.virtualized import V  # noqa: E402

from gemmtune.engine.consumers.inductor.loader import loader  # noqa: E402

pytestmark = pytest.mark.slow(6)

ATTRIBUTES = [(pad_mm, "should_pad"), (TritonKernel, "codegen_kernel"), (GraphLowering, "run")]
ITEMS = [(copyreg.dispatch_table, torch.memory_format), (lowerings, torch.ops.aten.convolution.default)]


@pytest.fixture(autouse=True)
def _entries_as_they_were():
    """Take back what a test leaves in the place of an entry: the one before its own."""
    with patch.dict(copyreg.dispatch_table), patch.dict(lowerings):
        yield


@pytest.fixture
def install(exported):
    """Return a function that installs a table without rows."""
    yield lambda: loader.install(exported() / "inductor_table.json")
    loader.uninstall()


def mine(*_, **__):
    return "mine"


@pytest.mark.parametrize(("owner", "name"), ATTRIBUTES)
def test_a_function_of_the_program_comes_back_and_a_later_one_stays(install, monkeypatch, owner, name):
    stock = getattr(owner, name)
    install()
    assert getattr(owner, name) is not stock
    loader.uninstall()
    assert getattr(owner, name) is stock
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, mine)
        install()
        assert getattr(owner, name) is not mine
        loader.uninstall()
        assert getattr(owner, name) is mine
    install()
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, mine)
        loader.uninstall()
        assert getattr(owner, name) is mine


@pytest.mark.parametrize(("mapping", "key"), ITEMS, ids=["reducer", "lowering"])
def test_an_entry_of_the_program_comes_back_and_a_later_one_stays(install, monkeypatch, mapping, key):
    before = mapping.get(key)
    install()
    assert mapping[key] is not before
    loader.uninstall()
    assert mapping.get(key) is before
    with monkeypatch.context() as patched:
        patched.setitem(mapping, key, mine)
        install()
        assert mapping[key] is not mine
        loader.uninstall()
        assert mapping[key] is mine
    install()
    with monkeypatch.context() as patched:
        patched.setitem(mapping, key, mine)
        loader.uninstall()
        assert mapping[key] is mine


def test_passes_of_other_backends_stay(install, monkeypatch):
    monkeypatch.setitem(custom_backend_passes, "another", None)
    install()
    loader.uninstall()
    assert "another" in custom_backend_passes
    assert "gemmtune" not in custom_backend_passes


def test_a_function_that_wraps_ours_runs_the_earlier_one_once_the_table_is_gone(install, monkeypatch):
    asked = []
    monkeypatch.setattr(pad_mm, "should_pad", lambda *_, **__: asked.append("earlier") or True)
    install()
    ours = pad_mm.should_pad
    monkeypatch.setattr(pad_mm, "should_pad", lambda *given, **named: asked.append("later") or ours(*given, **named))
    meta = torch.empty(8, 8, device="meta")
    with config.patch(shape_padding=False):
        assert not pad_mm.should_pad(None, meta, meta, torch.ops.aten.mm)
        assert asked == ["later"]
        loader.uninstall()
        assert pad_mm.should_pad(None, meta, meta, torch.ops.aten.mm)
    assert asked == ["later", "later", "earlier"]


def test_a_thread_that_has_chosen_by_one_loader_chooses_by_the_next(exported, load):
    folder = exported()
    for name in ("first_loader", "second_loader"):
        its = load(folder, name)
        its.install(folder / "inductor_table.json")
        with V.set_choices_handler(V.choices):
            pass  # leaves the handler behind in this thread
        assert type(V.choices) is its.TableChoices
        its.uninstall()


def test_cache_keys_name_memory_formats_in_torch(install):
    install()
    assert copyreg.dispatch_table[torch.memory_format](torch.channels_last) == "channels_last"


def test_recordings_beside_a_table_leave_nothing_in_place(install, tmp_path):
    stock = GraphLowering.run
    install()
    for name in ("one.jsonl", "other.jsonl"):
        loader.record(tmp_path / name)
    loader.stop_recording()
    loader.uninstall()
    assert GraphLowering.run is stock
    loader.record(tmp_path / "alone.jsonl")
    assert GraphLowering.run is not stock
    loader.stop_recording()
    assert GraphLowering.run is stock


def test_a_table_answers_for_attention_once_after_a_recording(install, tmp_path):
    install()
    loader.record(tmp_path / "problems.jsonl")
    loader.stop_recording()
    *_, inductors = vars(V.choices)["get_flex_attention_fwd_configs"].args
    assert inductors.func is InductorChoices.get_flex_attention_fwd_configs
