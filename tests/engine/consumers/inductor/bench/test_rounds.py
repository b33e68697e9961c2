"""Rounds of a model's arms: each arm is captured several times, and neither always goes first."""

from __future__ import annotations

import contextlib
import time

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.bindings", reason="cuda-python is not installed")

from gemmtune.engine.consumers.inductor.bench import rounds  # noqa: E402
from gemmtune.engine.measure.timing.cuda_graphs import EARLY_KERNELS  # noqa: E402
from gemmtune.engine.toolchain.gpu_info import present_device  # noqa: E402

ARMS = ("eager", "compile", "table")


@pytest.fixture
def captured(monkeypatch):
    """Names of the arms in the order of their captures; a replay is the number of its capture."""
    names = []

    def replay(arm):
        names.append(arm)
        number = len(names)
        return lambda: number

    monkeypatch.setattr(rounds, "_early", list)
    monkeypatch.setattr(rounds, "_replay", replay)
    monkeypatch.setattr(rounds, "_sample_ms", lambda call, repeats: float(call()))
    return names


def test_arms_are_captured_anew_in_alternating_order(captured):
    samples, refused = rounds.timed_in_graphs({name: name for name in ARMS}, 0.0)
    assert refused == ""
    assert captured == [*ARMS, *ARMS[::-1]] * 2
    its = {name: [number + 1 for number, other in enumerate(captured) if other == name] for name in ARMS}
    assert samples == {name: tuple(1e6 * number for number in its[name] for _ in range(2)) for name in ARMS}


def test_an_arm_that_cannot_be_captured_is_named(captured, monkeypatch):
    def refuse(arm):
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr(rounds, "_replay", refuse)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    samples, refused = rounds.timed_in_graphs({"eager": "eager"}, 0.0)
    assert samples == {}
    assert refused == "eager: RuntimeError: operation not permitted when stream is capturing"


@pytest.mark.gpu
@pytest.mark.skipif(present_device() is None, reason="needs a GPU")
def test_a_gpu_times_all_arms_in_all_rounds():
    layer = torch.nn.Linear(1024, 1024, dtype=torch.bfloat16, device="cuda")
    rows = torch.randn(512, 1024, dtype=torch.bfloat16, device="cuda")
    with torch.no_grad():
        samples, refused = rounds.timed_in_graphs({"one": lambda: layer(rows), "other": lambda: layer(rows)}, 0.5)
    assert refused == ""
    assert len(samples["one"]) == len(samples["other"]) >= 8
    assert all(time > 0 for its in samples.values() for time in its)


class Clock:
    """torch.cuda with events that read a clock, which calls move on; `calls` counts them."""

    def __init__(self, took_ms):
        self.now, self.calls, self.took_ms, self.waited, self.slept = 0.0, 0, took_ms, 0, []
        clock = self

        class Event:
            def __init__(self, enable_timing):
                assert enable_timing

            def record(self):
                self.at = clock.now

            def synchronize(self):
                clock.waited += 1

            def elapsed_time(self, end):
                return end.at - self.at

        self.Event = Event

    def __call__(self):
        self.calls += 1
        self.now += self.took_ms


def test_a_sample_is_the_time_per_call_after_one_that_is_not_counted(monkeypatch):
    clock = Clock(0.5)
    monkeypatch.setattr(rounds, "_CUDA", clock)
    assert rounds._sample_ms(clock, 4) == 0.5
    assert (clock.calls, clock.waited) == (5, 1)


@pytest.mark.parametrize(("took_ms", "repeats"), [(0.5, 4), (0.6, 4), (2.0, 1), (30.0, 1), (0.0, 2000)])
def test_a_sample_takes_two_milliseconds_at_least(monkeypatch, took_ms, repeats):
    clock = Clock(took_ms)
    monkeypatch.setattr(rounds, "_CUDA", clock)
    assert rounds._repeats(clock) == repeats
    assert clock.calls == 4  # the first sample warms up


@pytest.mark.parametrize(
    ("seconds", "least", "most", "run"), [(0.0, 3, 9, 3), (1e9, 3, 9, 9), (3.5, 1, 9, 4), (3.5, 6, 9, 6)]
)
def test_rounds_are_run_for_a_time_within_their_bounds(monkeypatch, seconds, least, most, run):
    order = []
    monkeypatch.setattr(rounds, "_repeats", lambda call: 7)
    monkeypatch.setattr(rounds, "_sample_ms", lambda call, repeats: order.append((call, repeats)) or len(order) * 1.0)
    monkeypatch.setattr(time, "monotonic", lambda: len(order) / 2)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    samples = rounds.timed_rounds({"a": "A", "b": "B"}, seconds, least, most)
    assert len(samples["a"]) == len(samples["b"]) == run
    assert order[:4] == [("A", 7), ("B", 7), ("B", 7), ("A", 7)]
    assert samples["a"][:2] == (1e6, 4e6)


def test_an_arm_is_warmed_up_on_a_stream_of_its_own_and_its_capture_is_replayed(monkeypatch):
    events = []

    class Stream:
        def __init__(self, name="side"):
            self.name = name

        def wait_stream(self, other):
            events.append(f"{self.name} waits for {other.name}")

    class Graph:
        def replay(self):
            events.append("replay")

    @contextlib.contextmanager
    def within(what):
        name = what.name if isinstance(what, Stream) else "graph"
        events.append(f"enter {name}")
        yield
        events.append(f"leave {name}")

    main = Stream("main")
    monkeypatch.setattr(rounds, "_CUDA", type("Cuda", (), {"Stream": Stream}))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: main)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: events.append("wait"))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "stream", within)
    monkeypatch.setattr(torch.cuda, "graph", within)
    replay = rounds._replay(lambda: events.append("call") or "output")
    assert events == [
        "side waits for main",
        "enter side",
        *["call"] * 3,
        "leave side",
        "main waits for side",
        "wait",
        "enter graph",
        "call",
        "leave graph",
        "wait",
    ]
    assert (replay(), events[-1]) == ("output", "replay")


def test_executables_that_time_nothing_come_first_and_live_until_the_last_sample(captured, monkeypatch):
    alive = []

    class Early:
        def __del__(self):
            alive.append(len(captured))

    monkeypatch.setattr(rounds, "_early", Early)
    rounds.timed_in_graphs({name: name for name in ARMS}, 0.0)
    assert alive == [12]


def test_early_executables_are_of_many_empty_kernels(monkeypatch):
    slept, made = [], []
    cuda = type("Cuda", (), {"Stream": lambda self: "stream", "_sleep": lambda self, cycles: slept.append(cycles)})
    monkeypatch.setattr(rounds, "_CUDA", cuda())
    monkeypatch.setattr(rounds, "Graph", lambda stream, enqueue: enqueue() or ("graph", stream))
    monkeypatch.setattr(rounds, "early_executables", lambda graph, stream: made.append((graph, stream)) or ["kept"])
    assert rounds._early() == ["kept"]
    assert slept == [0] * (1 + EARLY_KERNELS)
    assert made == [(("graph", "stream"), "stream")]
