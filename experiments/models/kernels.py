"""List the kernels of one step in two arms of the bench, and how long each takes. Needs the table's GPU.

    python kernels.py --table FOLDER/table --cases whisper-training,qwen3-512-tokens --out kernels.json

`bench` tells how long a step takes, and rows tell what each kernel takes by itself. CUPTI times every kernel within the
step here, and the pause until the next one begins, in CUDA graphs of both arms that are replayed in turn. Products are
told apart by their place in the step: a kernel that both arms run is the same work, and what lies between two such
kernels is compared as a whole.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import NamedTuple

import torch
from run import Case, cases
from torch.profiler import ProfilerActivity, profile

from gemmtune.engine.capture.inputs import parse_inputs
from gemmtune.engine.measure.models.arms import TABLE
from gemmtune.engine.measure.models.bench_model import _prepared
from gemmtune.engine.measure.models.rounds import _replay
from gemmtune.engine.measure.models.running import cold, compiled_arm
from gemmtune.engine.tables.inductor import loader

ROUNDS, REPLAYS = 6, 5


class Kernel(NamedTuple):
    """One kernel of a step."""

    name: str
    us: float
    pause_us: float
    """Time from its end to the beginning of the next one; negative if that begins earlier."""


class Span(NamedTuple):
    """Kernels between two that both arms run, or one that both run."""

    first: tuple[Kernel, ...]
    second: tuple[Kernel, ...]

    @property
    def is_same(self) -> bool:
        """Whether both arms run the same kernels here."""
        return [kernel.name for kernel in self.first] == [kernel.name for kernel in self.second]

    @property
    def saved_us(self) -> float:
        """Time that the second arm saves here."""
        return sum(kernel.us for kernel in self.first) - sum(kernel.us for kernel in self.second)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", type=Path, required=True, help="folder of the table")
    parser.add_argument("--cases", required=True, help="names of cases of run.py, with commas")
    parser.add_argument("--arms", default="compile,table", help="two arms of gemmtune bench, with a comma")
    parser.add_argument("--out", type=Path, required=True, help="file for the spans of all cases")
    given = parser.parse_args()
    arms = tuple(given.arms.split(","))
    named = {case.name: case for case in cases()}
    found = {}
    for name in given.cases.split(","):
        spans = list(compared(*traced(named[name], arms, given.table)))
        found[name] = [
            {arm: [kernel._asdict() for kernel in its] for arm, its in zip(arms, span, strict=True)} for span in spans
        ]
        given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        torch.cuda.empty_cache()
        same = [span for span in spans if span.is_same]
        for place, arm in enumerate(arms):
            whole, common = (total([kernel for span in its for kernel in span[place]]) for its in (spans, same))
            print(f"{name}, {arm}: {whole}; the same kernels in both arms {common}")
        for span in sorted((span for span in spans if not span.is_same), key=lambda span: span.saved_us):
            print(f"  {span.saved_us:8.2f} " + " | ".join(" + ".join(map(text, its)) for its in span))


def traced(case: Case, arms: Sequence[str], table: Path) -> tuple[list[Kernel], list[Kernel]]:
    """Return the kernels of a step per arm, in order, with the medians of their times."""
    torch._dynamo.reset()
    prepared = _prepared(case.options[0], parse_inputs(case.inputs)[0], grad=case.grad)
    graphs = {}
    prepared.arm(prepared.call)()
    for name in arms:
        with cold():
            if name == TABLE:
                loader.install(table / "inductor" / "inductor_table.json")
            try:
                arm = compiled_arm(prepared, name)
                arm()
            finally:
                if name == TABLE:
                    loader.uninstall()
        with torch.compiler.set_stance("fail_on_recompile"):
            graphs[name] = _replay(arm)
    steps: dict[str, list[list[Kernel]]] = {name: [] for name in arms}
    for number in range(ROUNDS):
        for name in arms[:: -1 if number % 2 else 1]:
            graphs[name]()
            steps[name] += kernels_of(graphs[name])
    return tuple(medians(steps[name]) for name in arms)


def kernels_of(replay) -> list[list[Kernel]]:
    """Return the kernels of each replay, in the order in which they began. The last one of a replay has no pause."""
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(REPLAYS):
            replay()
        torch.cuda.synchronize()
    events = sorted(
        (event.start_ns(), event.name(), event.duration_ns())
        for event in seen.profiler.kineto_results.events()
        if event.device_type() == torch.autograd.DeviceType.CUDA
    )
    count, rest = divmod(len(events), REPLAYS)
    if rest or not count:
        raise RuntimeError(f"{len(events)} kernels of {REPLAYS} equal replays were seen: some are missing")
    steps = []
    for place in range(0, len(events), count):
        its = events[place : place + count]
        ends = [began + ns for began, _, ns in its]
        begins = [began for began, _, _ in its[1:]] + ends[-1:]
        pauses = [(begin - end) / 1e3 for end, begin in zip(ends, begins, strict=True)]
        steps.append([Kernel(name, ns / 1e3, pause) for (_, name, ns), pause in zip(its, pauses, strict=True)])
    return steps


def medians(steps: Sequence[Sequence[Kernel]]) -> list[Kernel]:
    """Return each kernel with a short name and the medians of its times over the steps."""
    return [
        Kernel(
            shortened(its[0].name),
            statistics.median(kernel.us for kernel in its),
            statistics.median(kernel.pause_us for kernel in its),
        )
        for its in zip(*steps, strict=True)
    ]


def shortened(name: str) -> str:
    """Return a kernel's name without its arguments and Inductor's running number, at most 60 characters."""
    return re.sub(r"[<(].*|_\d+$", "", name.removeprefix("void "))[:60]


def compared(one: Sequence[Kernel], other: Sequence[Kernel]) -> Iterator[Span]:
    """Yield the spans of two lists of kernels, in order."""
    names = [[kernel.name for kernel in kernels] for kernels in (one, other)]
    for tag, begin, end, first, last in SequenceMatcher(None, *names, autojunk=False).get_opcodes():
        pieces = [(begin, end, first, last)]
        if tag == "equal":
            pieces = [(begin + i, begin + i + 1, first + i, first + i + 1) for i in range(end - begin)]
        for a, b, c, d in pieces:
            yield Span(tuple(one[a:b]), tuple(other[c:d]))


def total(kernels: Sequence[Kernel]) -> str:
    """Return the time in some kernels, and that between each and the next."""
    return f"{sum(k.us for k in kernels):.1f} µs, and {sum(k.pause_us for k in kernels):.1f} between kernels"


def text(kernel: Kernel) -> str:
    """Return a kernel with its time and the pause behind it."""
    return f"{kernel.name} {kernel.us:.2f} {kernel.pause_us:.2f}"


if __name__ == "__main__":
    main()
