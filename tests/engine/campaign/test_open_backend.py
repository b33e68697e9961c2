"""What answers for a campaign: each situation of GPUs, clusters, landscapes and wanted devices, and its refusals."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gemmtune.engine.campaign import open_backend as opening
from gemmtune.engine.campaign.open_backend import open_backend
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.execution import hosts
from gemmtune.engine.execution.estimate import EstimateExecutor
from gemmtune.engine.execution.local import LocalExecutor
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.errors import DeviceError, UsageError
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.tables.loss_limits import RangeLimits

from ..execution.fake_cluster import FakeCluster, hosts_of

H200, H100 = catalogue.device("H200"), catalogue.device("H100")
PLAN = Plan((Problem(16, 64, 128),), spaces=("triton_mm", "aten"))
RECORDED = [SimpleNamespace(context={"space": name}) for name in ("triton_mm", "aten")]


@pytest.fixture
def host(monkeypatch):
    """Return a function that sets what is on this host, and the calls that a backend was made with."""
    calls = SimpleNamespace(prepared=[], completed=[])

    def answer(kind):
        return lambda *asked, **named: (kind, asked, named)

    def make(*, gpu=None, names=(), recorded=RECORDED, cluster=None):
        replaced = {
            "gpu_names": lambda: names,
            "why_no_gpu": lambda: "The driver is too old",
            "prepare_builders": calls.prepared.append,
            "recorded_of": lambda plan: ["shipped"],
            "completed": lambda *asked: calls.completed.append(asked) or recorded,
            "recorded_device": lambda found: H200,
            "Hosts": lambda name, address, notify: hosts_of(cluster),
            **{f"{kind}_backend": answer(kind) for kind in ("replayed", "measured", "estimated")},
        }
        for name, value in replaced.items():
            monkeypatch.setattr(opening, name, value)
        monkeypatch.setattr(hosts, "present_device", lambda: gpu)
        return calls

    return make


CLOCKS = "clocks are not locked: recorded landscapes answer, nothing is measured"


@pytest.mark.parametrize(
    ("here", "asked", "notes"),
    [
        ({}, {}, ("No GPU found; using the recorded landscapes.",)),
        ({}, {"device": H200}, ("No GPU found; using the recorded landscapes.",)),
        ({"names": ("NVIDIA H200",)}, {}, ("The driver is too old; using the recorded landscapes.",)),
        ({"gpu": H200}, {"landscapes": ["mine"]}, ()),
        ({}, {"landscapes": ["mine"], "device": H200, "clock_mhz": 1500}, (CLOCKS,)),
        ({}, {"clock_mhz": 1500}, (CLOCKS, "No GPU found; using the recorded landscapes.")),
        (
            {"cluster": FakeCluster()},
            {},
            ("No GPU in the Ray cluster; the recorded landscapes answer in this process.",),
        ),
        (
            {"cluster": FakeCluster(H200)},
            {"landscapes": ["mine"]},
            ("Landscapes were named; the recorded landscapes answer in this process.",),
        ),
    ],
)
def test_recorded_landscapes_answer_with_a_note_why(host, here, asked, notes):
    calls = host(**here)
    kind, (plan, found), named = open_backend(PLAN, **asked)
    assert (kind, plan, found, named) == ("replayed", PLAN, RECORDED, {"notes": notes})
    assert calls.completed == [(asked.get("landscapes", ["shipped"]), PLAN.spaces, asked.get("device"))]
    assert "cluster" not in here or here["cluster"].closed


@pytest.mark.parametrize(
    ("here", "asked", "found", "reason"),
    [
        ({"gpu": H100}, {"device": H200}, "No {} here", f"the GPU here is {H100.name} ({H100.sku})"),
        ({}, {"device": H100}, "No {} here", f"there is no GPU here and the recorded landscapes are of {H200.sku}"),
        (
            {"recorded": RECORDED[1:], "names": (H200.name,)},
            {"device": H200},
            "{} found, but no CUDA",
            "there is no GPU here and nothing is recorded in space triton_mm",
        ),
    ],
)
def test_a_model_answers_for_a_device_that_neither_is_here_nor_was_recorded(
    host, here, asked, found, reason, monkeypatch
):
    host(**here)
    kind, (plan, device, text), named = open_backend(PLAN, builders=3, clock_mhz=1500, **asked)
    assert (kind, plan, device, text) == ("estimated", PLAN, asked["device"], found.format(asked["device"].name))
    assert named["notes"] == ("clocks are not locked: a model answers, nothing is measured",)
    executor = named["open_executor"]
    assert executor.func is EstimateExecutor
    assert executor.keywords["builders"] == 3

    def refuse(*_, **__):
        raise UsageError("no space has a model")

    monkeypatch.setattr(opening, "estimated_backend", refuse)
    with pytest.raises(DeviceError) as refused:
        open_backend(PLAN, **asked)
    start, end = str(refused.value).split("; no space has a model; ")
    assert start.startswith(f"no {asked['device'].sku} to tune on: ")
    assert start.endswith(reason)
    assert end == "run this where such a GPU is, or leave out --device"


@pytest.mark.parametrize("asked", [{}, {"device": H200}])
def test_the_gpu_here_is_measured(host, asked):
    host(gpu=H200)
    kind, (plan, device, executor), named = open_backend(PLAN, builders=3, clock_mhz=1500, notify=print, **asked)
    assert (kind, plan, device) == ("measured", PLAN, H200)
    assert named == {"problems": (), "clock_mhz": 1500, "notify": print}
    assert executor.func is LocalExecutor
    assert {name: executor.keywords[name] for name in ("builders", "notify")} == {"builders": 3, "notify": print}
    assert executor.keywords["protocol_name"] == PLAN.plugins.objective.protocol


def test_a_plan_without_problems_tunes_the_recorded_ones_of_its_spaces(host, monkeypatch):
    one, two, other, held = (Problem(m, 64, 128) for m in (16, 32, 64, 128))
    recorded = [(one, "aten"), (two, "triton_mm"), (one, "triton_mm"), (other, "cute_gemm"), (None, "aten")]
    found = [SimpleNamespace(problem=problem, context={"space": space}) for problem, space in recorded]
    host(gpu=H200)
    monkeypatch.setattr(opening, "embedded", lambda: "files")
    monkeypatch.setattr(opening, "read_all", {"files": found}.get)
    plan = Plan((), spaces=PLAN.spaces, held_out=(held,), ranges=RangeLimits())
    assert open_backend(plan)[2]["problems"] == (one, two, held)


@pytest.mark.parametrize(
    ("here", "asked", "prepares"),
    [
        ({"names": ("NVIDIA H200",)}, {}, True),
        ({"names": ("NVIDIA H200",)}, {"builds": False}, False),
        ({"names": ("NVIDIA H200",)}, {"landscapes": ["mine"]}, False),
        ({"names": ("NVIDIA H200",), "cluster": FakeCluster()}, {}, False),
        ({}, {}, False),
    ],
)
def test_imports_of_builders_begin_at_once_where_a_gpu_will_build_for(host, here, asked, prepares):
    calls = host(**here)
    open_backend(PLAN, **asked)
    assert calls.prepared == ([PLAN.spaces] if prepares else [])


def test_named_landscapes_of_another_device_are_refused(host):
    host()
    with pytest.raises(DeviceError) as refused:
        open_backend(PLAN, device=H100, landscapes=["mine"])
    assert str(refused.value) == f"device {H100.sku} is wanted, but the landscapes are of {H200.sku}"


def test_clocks_of_a_cluster_cannot_be_locked(host):
    host()
    with pytest.raises(UsageError) as refused:
        open_backend(PLAN, cluster="ray://head:1", clock_mhz=1500)
    assert str(refused.value) == (
        "locked clocks are for GPUs of this machine, and fleet ray://head:1 measures on a cluster's"
    )
