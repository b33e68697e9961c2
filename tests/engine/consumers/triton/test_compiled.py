"""Tables inside torch.compile: what Inductor generates for an H200 that is not here has the row's config alone."""

from __future__ import annotations

import ast
import re
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
triton = pytest.importorskip("triton", reason="triton is not installed")

from torch._inductor.graph import GraphLowering  # noqa: E402 (torch is there)

from gemmtune.engine.consumers.inductor.capture.fake_gpu import GPU, fake_gpu  # noqa: E402 (as above)
from gemmtune.engine.records import catalogue  # noqa: E402 (as above)
from gemmtune.engine.records.config import Config  # noqa: E402 (as above)

pytestmark = [pytest.mark.slow(12), pytest.mark.filterwarnings("ignore:::torch")]  # torch warns of itself

OPTIONS = {"fx_graph_cache": False, "compile_threads": 1}
OWN = [(128, 4), (256, 4)]
EVEN = "@triton.heuristics({'EVEN': lambda args: args['n'] % 4096 == 0})"
PRUNE = """
def prune(configs, named_args, **kwargs):
    return [config for config in configs if config.kwargs["BLOCK"] <= 128]
"""


@pytest.fixture
def lowered(monkeypatch):
    """Return a function that lowers launches of a kernel at several sizes to BLOCK and num_warps of their configs."""
    torch._dynamo.reset()
    codes = []

    def keep(graph):
        code, _ = graph.codegen()
        codes.append(code.value)
        return SimpleNamespace(call=lambda arguments: graph.orig_gm(*arguments), __file__=__file__, runner=None)

    monkeypatch.setattr(GraphLowering, "compile_to_module", keep)

    def lower(kernel, *sizes, **named):
        def program(x, n):
            out = torch.empty_like(x)
            kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](out, x, n, **named)
            return out + 1

        with fake_gpu(catalogue.device("H200")), GPU:
            compiled = torch.compile(program, options=OPTIONS, fullgraph=True)
            for size in sizes:
                compiled(torch.empty(size, dtype=torch.bfloat16), size)
        configs = [ast.literal_eval(found) for code in codes for found in re.findall(r"configs=(\[\{.*\}\]),", code)]
        return [[(config["BLOCK"], config["num_warps"]) for config in each] for each in configs]

    yield lower
    torch._dynamo.reset()


def loaded(forms, **change):
    """Return a kernel with a row of BLOCK 512 at size 4096 and of 256 at 65536."""
    cases = forms.write(**change)
    loader = forms.export([forms.row(cases[0]), forms.row(cases[1], Config({**forms.tuned, "BLOCK": 256}))])
    kernel = forms.kernel_of(cases[0])
    loader.load(kernel, device="NVIDIA H200")
    return kernel


def test_a_compiled_launch_has_the_rows_config_alone_and_one_without_a_row_its_own(forms, lowered):
    kernel = loaded(forms)
    assert lowered(kernel, 4096, 65536, 5000) == [[(512, 8)], [(256, 8)], OWN]  # the second size is a symbol


def test_a_compiled_launch_between_rows_has_the_nearest_ones_config(forms, lowered):
    assert lowered(loaded(forms, members="nearest = 'n'"), 5000, 60000) == [[(512, 8)], [(256, 8)]]


@pytest.mark.parametrize(
    "decorators",
    [
        f"{EVEN}\n@triton.autotune(CONFIGS, key=['n', 'EVEN'])",
        f"@triton.autotune(CONFIGS, key=['n'])\n{EVEN}",
        "@triton.autotune(CONFIGS[:1], key=['n'])\n" + EVEN,
    ],
    ids=["above", "below", "one config"],
)
def test_a_compiled_launch_below_heuristics_has_the_rows_config(forms, lowered, decorators):
    [found] = lowered(loaded(forms, parameters="EVEN: tl.constexpr, ", decorators=decorators), 4096)
    if torch.__version__.startswith("2.11."):  # it cannot prune what has heuristics
        assert set(found) <= set(OWN)
    else:
        assert found == [(512, 8)]


def test_a_compiled_launch_is_told_apart_by_a_bool(forms, lowered):
    kernel = loaded(
        forms,
        parameters="FLAG: tl.constexpr, ",
        given="'FLAG': case['flag'] == 1",
        cases="{'a': {'n': 4096, 'flag': 1}, 'b': {'n': 4096, 'flag': 2}}",
        decorators="@triton.autotune(CONFIGS, key=['n', 'FLAG'])",
    )
    assert lowered(kernel, 4096, FLAG=False) == [[(256, 8)]]


def test_a_compiled_launch_without_a_row_keeps_the_kernels_own_pruning(forms, lowered):
    decorators = "@triton.autotune(CONFIGS, key=['n'], prune_configs_by={'early_config_prune': prune})"
    assert lowered(loaded(forms, before=PRUNE, decorators=decorators), 4096, 5000) == [[(512, 8)], [(128, 4)]]


def test_a_kernel_that_resets_its_outputs_compiles_as_without_a_table(forms, lowered):
    kernel = loaded(forms, decorators="@triton.autotune(CONFIGS, key=['n'], reset_to_zero=['out'])")
    assert lowered(kernel, 4096) == [OWN]
