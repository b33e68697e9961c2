"""SGLang's plug-in as an export has it: its hook runs the row's kernel for an m, and SGLang's function elsewhere."""

from __future__ import annotations

import importlib.util
import os
import sys
from functools import partial
from importlib.metadata import distributions
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from gemmtune.engine.api.output_folder import write_all  # noqa: E402 (the packages are there)
from gemmtune.engine.consumers.serving.linear.exporter import SglangFp8Exporter  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))

from linear_tables import SCALED, exported, row, table  # noqa: E402 (beside this file)

N, K, UTILS = 96, 64, "sglang.srt.layers.quantization.fp8_utils"
REGISTRY = "sglang.srt.plugins.hook_registry"
INVARIANT = "sglang.srt.batch_invariant_ops"
NAME = f"x96x64:e4m3:nt:epilogue={SCALED}"


class Hooks:
    """Contract of SGLang's HookRegistry that the plug-in relies on."""

    hooks: ClassVar[list[Any]] = []

    @classmethod
    def register(cls, target, hook, kind):
        cls.hooks.append((target, hook))

    @classmethod
    def apply_hooks(cls):
        for target, hook in cls.hooks:
            module, _, name = target.rpartition(".")
            original = getattr(sys.modules[module], name)
            setattr(sys.modules[module], name, partial(hook, original))


def loaded(name, file):
    where = importlib.util.spec_from_file_location(name, file, submodule_search_locations=[str(file.parent)])
    sys.modules[name] = module = importlib.util.module_from_spec(where)
    where.loader.exec_module(module)
    return module


@pytest.fixture(params=["stand-in", "wheel"])
def sglang(request, tmp_path, monkeypatch):
    """SGLang's function under the hooks of an exported plug-in; `own` and `rows` are the m of calls."""
    wheel = os.environ.get("GEMMTUNE_SGLANG") if request.param == "wheel" else ""
    if wheel is None:
        pytest.skip("GEMMTUNE_SGLANG names no folder with an unpacked wheel of SGLang")
    found = SimpleNamespace(own=[], rows=[], folder=tmp_path, is_invariant=False)

    def fp8_scaled_mm(mat_a, mat_b, scales_a, scales_b, out_dtype, bias=None):
        found.own.append(mat_a.shape[0])
        return ((mat_a.float() @ mat_b.float()) * scales_a * scales_b.view(1, -1)).to(out_dtype)

    parts = UTILS.split(".")
    names = [".".join(parts[: count + 1]) for count in range(len(parts))]
    for name in (*names, "sglang.srt.plugins", REGISTRY, INVARIANT, "gemmtune_sglang"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    for parent, child in pairwise(names):
        setattr(sys.modules[parent], child.rpartition(".")[2], sys.modules[child])
    invariant: Any = sys.modules[INVARIANT]
    invariant.is_batch_invariant_mode_enabled = lambda: found.is_invariant
    registry: Any = sys.modules[REGISTRY]
    registry.HookRegistry, registry.HookType, Hooks.hooks = Hooks, SimpleNamespace(AROUND="around"), []
    if wheel:
        registry = loaded(REGISTRY, Path(wheel, *REGISTRY.split(".")).with_suffix(".py"))
    utils: Any = sys.modules[UTILS]
    utils.fp8_scaled_mm = fp8_scaled_mm
    rows = table(row(f"16{NAME}", "triton_mm"))
    write_all(exported(rows, engine=SglangFp8Exporter), tmp_path)
    plugin = loaded("gemmtune_sglang", tmp_path / "gemmtune_sglang/__init__.py")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: rows.device.name)
    plugin.register(), plugin.register()
    registry.HookRegistry.apply_hooks()

    def kernel(tensors):
        found.rows.append(tensors["a"].shape[0])
        tensors["out"].copy_((tensors["a"].float() @ tensors["b"].float()) * tensors["column"] * tensors["row"])

    linears = plugin._in_use()[0]
    linears._kernels = dict.fromkeys(linears._table.cubins, kernel)
    found.call, found.plugin = utils.fp8_scaled_mm, plugin
    yield found
    for library in plugin._libraries:
        library._destroy()
    for name in [each for each in sys.modules if each.startswith("gemmtune_sglang.")]:
        del sys.modules[name]


def test_sglang_finds_the_entry_point_in_the_exported_folder(sglang):
    [found] = [each for dist in distributions(path=[str(sglang.folder)]) for each in dist.entry_points]
    assert (found.group, found.value) == ("sglang.srt.plugins", "gemmtune_sglang:register")


def test_a_row_runs_for_its_m_and_sglangs_function_for_others(sglang):
    for m in (16, 48, 16):
        a, b = torch.randn(m, K).to(torch.float8_e4m3fn), torch.randn(N, K).to(torch.float8_e4m3fn).T
        scales = torch.rand(m, 1) + 0.5, torch.rand(N, 1) + 0.5
        out = sglang.call(a, b, *scales, out_dtype=torch.bfloat16, bias=None)
        wanted = (a.float() @ b.float()) * scales[0] * scales[1].T
        torch.testing.assert_close(out.float(), wanted, rtol=2**-7, atol=2**-7)
    assert (sglang.rows, sglang.own) == ([16, 16], [48])
    assert sglang.plugin.report() == {"row": {f"16{NAME}": 2}, "miss": {f"48{NAME}": 1}}


def test_batch_invariant_mode_is_sglangs_own(sglang):
    sglang.is_invariant = True
    sglang.plugin._in_use.cache_clear()
    a, b = torch.randn(16, K).to(torch.float8_e4m3fn), torch.randn(N, K).to(torch.float8_e4m3fn).T
    sglang.call(a, b, torch.rand(16, 1), torch.rand(N, 1), out_dtype=torch.bfloat16)
    assert (sglang.rows, sglang.own, sglang.plugin.report()) == ([], [16], {})


def test_a_first_call_may_be_compiled(sglang, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # torch.compile asks for one that is there
    a, b = torch.randn(48, K).to(torch.float8_e4m3fn), torch.randn(N, K).to(torch.float8_e4m3fn).T
    operands = a, b, torch.rand(48, 1), torch.rand(N, 1)
    compiled = torch.compile(lambda *given: sglang.call(*given, torch.bfloat16), backend="eager", fullgraph=True)
    assert compiled(*operands).shape == (48, N)
    assert sglang.own == [48]


def test_the_operator_has_a_fake(sglang):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        a, b = torch.empty(16, K, dtype=torch.float8_e4m3fn), torch.empty(N, K, dtype=torch.float8_e4m3fn).T
        out = sglang.call(a, b, torch.empty(16, 1), torch.empty(N, 1), out_dtype=torch.float16, bias=None)
    assert (out.shape, out.dtype) == ((16, N), torch.float16)
    assert (sglang.rows, sglang.own) == ([], [])
