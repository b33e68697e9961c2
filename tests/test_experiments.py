"""Timing in the experiments, as far as their text shows it."""

from __future__ import annotations

from pathlib import Path

EXPERIMENTS = Path(__file__).parents[1] / "experiments"


def test_an_experiment_replays_a_graph_before_the_event_that_times_the_next_replay():
    """On an idle GPU an event is over at once, and the time until the host has launched the graph would count."""
    timed = []
    for file in EXPERIMENTS.rglob("*.py"):
        lines = [line.partition("#")[0].strip() for line in file.read_text(encoding="utf-8").splitlines()]
        for before, event, replay in zip(lines, lines[1:], lines[2:], strict=False):
            if event.endswith(".record()") and replay.endswith(".replay()"):
                timed.append(file.parent.name)
                assert before == replay, file
    assert sorted(timed) == ["batch-invariant", "decode", "epilogues"]
