"""Report of a model's bench: the arms, their ratios, and each product's part."""

from collections.abc import Callable
from dataclasses import asdict

from gemmtune.engine.consumers.inductor.bench.arms import BASE, TABLE
from gemmtune.engine.consumers.inductor.bench.model_bench import ArmTimes, ModelBench, ProductGain
from gemmtune.engine.report.layout import Grid, Report

_MOST_PRODUCTS = 20


def bench_report(bench: ModelBench) -> Report:
    """Return the report of a model's bench."""
    what = "forward and backward" if bench.grad else "forward"
    how = "in CUDA graphs" if bench.in_graphs else "without CUDA graphs"
    head = f"{bench.call}({', '.join(bench.inputs)}), {what}, on {bench.device}, torch {bench.torch}, {how}"
    sections: list[str | Grid] = [head, _arms(bench)]
    sections += _verdict(bench)
    failed = [f"{arm.arm} failed: {arm.failure}" for arm in bench.arms if arm.failure]
    sections += ["\n".join(failed)] if failed else []
    shared = [f"{arm.arm} {arm.shared_kernels}" for arm in bench.arms if arm.shared_kernels]
    sections += [f"kernels with the config that an earlier arm chose: {', '.join(shared)}"] if shared else []
    if bench.products:
        sections += [_products(bench), _sums(bench)]
    record = {
        **asdict(bench),
        "arms": [
            {
                **asdict(arm),
                "time_ns": arm.time and arm.time.time_ns,
                "low_ns": arm.time and arm.time.low_ns,
                "high_ns": arm.time and arm.time.high_ns,
                f"over_{BASE}": (ratio := bench.ratio(arm.arm)) and asdict(ratio),
            }
            for arm in bench.arms
        ],
        "products": [{**asdict(gain), "saved_ns": gain.saved_ns} for gain in bench.products],
        "fastest_other": bench.fastest,
    }
    return Report(record, sections)


def _verdict(bench: ModelBench) -> list[str]:
    """Return which arm to run, in a line; nothing without an arm with the table and one without."""
    other = bench.fastest
    ratio = bench.ratio(TABLE, other) if other else None
    if ratio is None:
        return []
    if ratio.low > 1:
        line = f"{TABLE} is the fastest: {ratio.factor:.3f} times as fast as {other}"
    elif ratio.high < 1:
        line = f"{other} is the fastest: {1 / ratio.factor:.3f} times as fast as {TABLE}"
    else:
        line = f"{TABLE} and {other} are the fastest, and equal within the noise"
    if ratio.high < 1 and other == "max-autotune":
        line += "; it tunes small kernels, too, as "
        line += 'options=gemmtune_inductor.options() | {"coordinate_descent_tuning": True} does'
    return [line]


def _arms(bench: ModelBench) -> Grid:
    columns: dict[str, Callable[[ArmTimes], str]] = {
        "arm": lambda arm: arm.arm,
        "ms": lambda arm: f"{arm.time.time_ns / 1e6:.3f}" if arm.time else "-",
        "± %": lambda arm: f"{(arm.time.high_ns - arm.time.low_ns) / arm.time.time_ns * 50:.2f}" if arm.time else "-",
        f"vs {BASE}": lambda a: f"{r.factor:.3f}x ({r.low:.3f} to {r.high:.3f})" if (r := bench.ratio(a.arm)) else "-",
        "first call s": lambda arm: f"{arm.first_call_seconds:.1f}" if arm.time else "-",
        "benchmarks": lambda arm: str(arm.product_benchmarks) if arm.time else "-",
        "MiB": lambda arm: f"{arm.peak_bytes / 2**20:.0f}" if arm.time else "-",
        "error": lambda arm: f"{arm.error:.1e}" if arm.time else "-",
    }
    return Grid({name: [cell(arm) for arm in bench.arms] for name, cell in columns.items()}, ("arm",))


def _products(bench: ModelBench) -> Grid:
    columns: dict[str, Callable[[ProductGain], str]] = {
        "product": lambda gain: gain.problem,
        "times": lambda gain: str(gain.count),
        "aten µs": lambda gain: "-" if gain.baseline_ns is None else f"{gain.baseline_ns / 1e3:.1f}",
        "row µs": lambda gain: "-" if gain.row_ns is None else f"{gain.row_ns / 1e3:.1f}",
        "saved µs": lambda gain: f"{gain.saved_ns / 1e3:.1f}" if gain.saved_ns else "-",
        "runs": lambda gain: gain.outcome if gain.outcome in ("row", "aten row") else f"{gain.outcome}: {gain.kernel}",
    }
    shown = bench.products[:_MOST_PRODUCTS]
    return Grid({name: [cell(gain) for gain in shown] for name, cell in columns.items()}, ("product", "runs"))


def _sums(bench: ModelBench) -> str:
    saved, misses = sum(gain.saved_ns for gain in bench.products), [g for g in bench.products if g.outcome == "miss"]
    lines = [f"by its rows the table saves {saved / 1e3:.1f} µs per call"]
    more = len(bench.products) - _MOST_PRODUCTS
    lines += [f"{more} further products are in the JSON"] if more > 0 else []
    if misses:
        names = " ".join(f"--problem {gain.problem}" for gain in misses)
        lines.append(f"{len(misses)} products have no row: gemmtune tune {names}")
    return "\n".join(lines)
