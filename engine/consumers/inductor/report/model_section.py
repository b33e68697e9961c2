"""Section on whole models: their times with the table and without."""

from collections.abc import Iterable

from gemmtune.engine.consumers.inductor.bench.model_bench import ArmTimes, ModelBench
from gemmtune.engine.report.html.page import Section, Sheet

_HEADERS = ("model", "arm", "ms", "95 % interval", "vs compile", "first call s", "benchmarks", "MiB", "error")
_TEXT = (
    "Each model ran in all arms in one process, in alternating rounds. 'vs compile' is torch.compile's time over the "
    "arm's: above 1 is faster. 'error' is the largest difference from eager."
)


def models(benches: Iterable[ModelBench]) -> list[Section]:
    """Return a section with the arms of every bench; none without a bench."""
    rows = [_row(bench, arm) for bench in benches for arm in bench.arms]
    return [Section("Models", _TEXT, sheet=Sheet(_HEADERS, rows, ("model", "arm")))] if rows else []


def _row(bench: ModelBench, arm: ArmTimes) -> list[str]:
    name = f"{bench.call}({', '.join(bench.inputs)}){', with gradients' if bench.grad else ''}"
    if arm.time is None:
        return [name, arm.arm, *["-"] * (len(_HEADERS) - 3), arm.failure]
    ratio = bench.ratio(arm.arm)
    return [
        name,
        arm.arm,
        f"{arm.time.time_ns / 1e6:.3f}",
        f"{arm.time.low_ns / 1e6:.3f}–{arm.time.high_ns / 1e6:.3f}",
        "-" if ratio is None else f"{ratio.factor:.3f} ({ratio.low:.3f}–{ratio.high:.3f})",
        f"{arm.first_call_seconds:.1f}",
        str(arm.product_benchmarks),
        f"{arm.peak_bytes / 2**20:.0f}",
        f"{arm.error:.1e}",
    ]
