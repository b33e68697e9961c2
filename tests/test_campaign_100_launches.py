"""Times of launches in the campaign's arms, on a simulated GPU: its graphs, streams and events share one clock."""

from __future__ import annotations

import importlib
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

HERE = Path(__file__).parents[1] / "experiments" / "campaign-100"
EVENTS_US, CYCLES_A_US = 2.0, 2000.0  # what events add to a launch


class Gpu:
    """Runs at once what is enqueued, or keeps it while a graph is captured. `late` launches find their GPU waiting."""

    def __init__(self):
        self.now_us, self.capturing, self.graphs, self.late = 0.0, None, [], 0
        gpu = self

        class Event:
            def __init__(self, enable_timing, external=False):
                self.external = external

            def record(self):
                assert self.external == (gpu.capturing is not None)
                gpu.enqueue("event", lambda: setattr(self, "at_us", gpu.now_us))

            def elapsed_time(self, end):
                return (end.at_us - self.at_us) / 1e3

            def query(self):
                gpu.late -= gpu.late > 0
                return gpu.late > 0

            def synchronize(self):
                pass

        class Graph:
            def capture_begin(self, pool, capture_error_mode):
                self.held = gpu.capturing = []

            def capture_end(self):
                gpu.capturing = None
                gpu.graphs.append([name for name, _ in self.held])

            def replay(self):
                for _, run in self.held:
                    run()

        self.cuda = SimpleNamespace(
            Event=Event,
            CUDAGraph=Graph,
            Stream=object,
            stream=nullcontext,
            graph_pool_handle=object,
            synchronize=lambda: None,
            mem_get_info=lambda: (1 << 25, 1 << 25),
            _sleep=lambda cycles: self.launch("sleep", cycles / CYCLES_A_US),
            current_stream=lambda: SimpleNamespace(cuda_stream=0),
        )

    def enqueue(self, name, run):
        run() if self.capturing is None else self.capturing.append((name, run))

    def launch(self, name, us):
        self.enqueue(name, lambda: setattr(self, "now_us", self.now_us + us + EVENTS_US))


@pytest.fixture
def gpu(monkeypatch):
    gpu = Gpu()
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.delitem(sys.modules, "launches", raising=False)
    launches = importlib.import_module("launches")
    sys.modules.pop("launches")
    empty = torch.empty
    fake = SimpleNamespace(cuda=gpu.cuda, empty=lambda size, dtype, device: empty(size, dtype=dtype), int8=torch.int8)
    host = SimpleNamespace(perf_counter=lambda: 0.0, sleep=lambda seconds: None)
    driver = SimpleNamespace(cuLaunchKernel=lambda *_: gpu.launch("empty", 0.0))
    answers = {"torch": fake, "time": host, "driver": driver, "_empty_kernel": lambda: None}
    for name, value in {"GPU": True, "COLD_BYTES": 1 << 20, **answers}.items():
        monkeypatch.setattr(launches, name, value)
    gpu.clock = launches.Clock()
    return gpu


OPERANDS = torch.zeros(16, 256), torch.zeros(32, 256)


def test_graphs_and_stream_take_off_what_events_cost(gpu):
    functions = {name: lambda a, b, us=us: gpu.launch("kernel", us) for name, us in (("compiled", 7.0), ("eager", 9.0))}
    found = gpu.clock.times(functions, *OPERANDS)
    assert {name: found[f"{name}_us"] for name in functions} == {"compiled": 7.0, "eager": 9.0}
    assert {name: found[f"{name}_stream_us"] for name in functions} == {"compiled": 7.0, "eager": 9.0}
    assert found["late"] == 0
    assert "note" not in found


@pytest.mark.parametrize(("us", "run", "graphs"), [(40.0, 1, 16), (20.0, 2, 8), (5.0, 7, 4), (1.0, 8, 4)])
def test_a_graph_holds_runs_in_turns_between_events_behind_a_launch(gpu, us, run, graphs):
    names = ("compiled", "eager")
    functions = {name: lambda a, b, name=name: gpu.launch(name, us) for name in names}
    found = gpu.clock.times(functions, *OPERANDS)
    assert found["eager_us"] == pytest.approx(us)
    first, second, *_ = gpu.graphs
    turns = [["event", *([name, "empty"] * run)[:-1], "event"] for name in names]
    assert first == ["eager", *(turns[0] + turns[1]) * 8]
    assert second == ["eager", *(turns[1] + turns[0]) * 8]
    assert len(gpu.graphs) == 2 * graphs  # and as many around nothing


def test_each_function_comes_to_all_operands(gpu):
    seen = {"compiled": set(), "eager": set()}
    gpu.clock.times({name: lambda a, b, at=at: at.add(a.data_ptr()) for name, at in seen.items()}, *OPERANDS)
    assert seen["compiled"] == seen["eager"]
    assert len(seen["eager"]) == 23  # the least odd number of copies of 48 KiB that make 1 MiB


def test_a_launch_that_the_host_is_late_with_is_repeated_with_a_longer_lead(gpu):
    kernel = {"eager": lambda a, b: gpu.launch("kernel", 5.0)}
    gpu.late = 3
    assert gpu.clock.times(kernel, *OPERANDS)["late"] == 0
    gpu.late = 10_000
    assert gpu.clock.times(kernel, *OPERANDS)["late"] == 60


def test_what_cannot_be_captured_is_timed_from_the_stream_and_says_so(gpu):
    def kernel(a, b):
        if gpu.capturing is not None:
            raise RuntimeError("operation not permitted\nwhen stream is capturing")
        gpu.launch("kernel", 5.0)

    found = gpu.clock.times({"eager": kernel}, *OPERANDS)
    assert found["eager_us"] == found["eager_stream_us"] == 5.0
    assert found["note"].endswith("RuntimeError: operation not permitted")
    assert gpu.capturing is None
