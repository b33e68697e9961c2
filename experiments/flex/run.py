"""Tune flex_attention in 14 cases and time it in torch.compile. Usage: run.py --out FOLDER [--seconds 540] [--sweep].

A run that was stopped, or whose time was over, goes on where it was when it is started again with the same folder.
`--models` times two models with the table of the folder, which it tunes for them if there is none. With `--rehearse` it
does so small and on a CPU: the times mean nothing.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import time
from pathlib import Path

BOTH = ("forward", "backward")
CASES = {  # sizes, the mask, the score function, and what is timed
    "llama-8b": ("b2:h32:kvh8:s4096:d128", "causal", "none", BOTH),
    "decode": ("b16:h32:kvh8:q1:kv4096:d128", "none", "none", ("decode",)),
    "window": ("b1:h32:kvh8:s8192:d128", "window(1024)", "none", BOTH),
    "documents": ("b1:h32:kvh8:s8192:d128", "causal_document", "none", BOTH),
    "gemma-2, d128": ("b1:h32:kvh16:s4096:d128", "causal", "softcap(50)", BOTH),
    "small heads": ("b8:h16:s1024:d64", "causal", "none", BOTH),
    "decode, 16k": ("b4:h32:kvh8:q1:kv16384:d128", "none", "none", ("decode",)),
    "large heads": ("b1:h8:kvh4:s4096:d256", "causal", "none", BOTH),
    "decode, small heads": ("b32:h16:q1:kv1024:d64", "none", "none", ("decode",)),
    "prefix": ("b2:h16:s2048:d64", "prefix(1024)", "none", BOTH),
    "gemma-2": ("b1:h16:kvh8:s8192:d256", "window(4096)", "softcap(50)", BOTH),
    "decode, gemma-2": ("b8:h16:kvh8:q1:kv8192:d256", "none", "softcap(50)", ("decode",)),
    "documents, 16k": ("b1:h16:kvh4:s16384:d64", "causal_document", "none", BOTH),
    "llama-8b, 16k": ("b1:h32:kvh8:s16384:d128", "causal", "none", BOTH),
}
SWEPT = (("decode", "decode"), ("small heads", "forward"), ("window", "forward"), ("large heads", "forward"))
"""Kernels whose whole space is measured with `--sweep`."""
ROUNDS, FLUSH_BYTES = 30, 2**29
CASE_SECONDS, MODEL_SECONDS = 30, 300
SLOWER = 1.01


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the database, the table and result.json")
    parser.add_argument("--seconds", type=float, default=540.0, help="wall time, about")
    parser.add_argument("--budget", type=int, default=32, help="evaluations per kernel")
    parser.add_argument("--cases", type=int, default=len(CASES), help="number of cases, from the first on")
    parser.add_argument("--sweep", action="store_true", help="measure the whole space of four kernels instead")
    parser.add_argument("--models", action="store_true", help="time two models that use flex_attention instead")
    parser.add_argument("--rehearse", action="store_true", help="with --models: small ones on a CPU, without a table")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    import gemmtune as gt

    settings = {"space": "flex_attention", "database": given.out / "flex.db"}
    cases = list(CASES)[: given.cases]
    wanted = SWEPT if given.sweep else [(case, phase) for case in cases for phase in CASES[case][-1]]
    texts = [problem(*each).name for each in wanted]
    result = Path(given.out / "result.json")
    known = json.loads(result.read_text()) if result.exists() else {}
    if given.models:
        in_models(gt, known, result, settings, given, began)
        return
    if given.sweep:
        sweep(gt, texts, known, settings, 0.9 * given.seconds)
    else:
        found = gt.tune(texts, budget=given.budget, seconds=0.5 * given.seconds, **settings)
        known |= {"device": found.device.name, "campaign_seconds": round(time.monotonic() - began, 1)}
        known["rows"] = {row.problem.name: fields(row) for row in found.rows}
        found.table.export("inductor", given.out)
        result.write_text(json.dumps(known, indent=1) + "\n")
        compiled = known.setdefault("compiled", {})
        sys.path.insert(0, str(given.out / "inductor"))
        for case in cases:
            configs = [known["rows"].get(problem(case, phase).name, {}).get("ships") for phase in CASES[case][-1]]
            if (
                compiled.get(case, {}).get("configs") == configs
                or given.seconds - time.monotonic() + began < CASE_SECONDS
            ):
                continue
            compiled[case] = {"configs": configs, **in_torch_compile(case)}
            print(case, compiled[case], flush=True)
            result.write_text(json.dumps(known, indent=1) + "\n")
    known["summary"] = table(known, wanted)
    result.write_text(json.dumps(known, indent=1) + "\n")
    print(json.dumps(known["summary"], indent=1))


def in_models(gt, known: dict, result: Path, settings: dict, given: argparse.Namespace, began: float) -> None:
    """Time the models that were not timed yet, with the folder's table."""
    import models

    table = given.out / "inductor" / "inductor_table.json"
    if not table.exists() and not given.rehearse:
        cases = [each.case for each in models.MODELS.values()]
        texts = [problem(case, phase).name for case in cases for phase in BOTH]
        gt.tune(texts, budget=given.budget, seconds=0.5 * given.seconds, **settings).table.export("inductor", given.out)
    sys.path.insert(0, str(table.parent))
    timed = known.setdefault("rehearsed" if given.rehearse else "models", {})
    for name in models.SMALL if given.rehearse else models.MODELS:
        if name not in timed and given.seconds - time.monotonic() + began > MODEL_SECONDS:
            timed[name] = models.measured(name, rehearse=given.rehearse)
            result.write_text(json.dumps(known, indent=1) + "\n")
    models.table(timed)


def problem(case: str, phase: str):
    """Return one kernel of a case."""
    from gemmtune.engine.records.flex.attention import Flex

    sizes, mask, score, _ = CASES[case]
    return Flex.parse(f"flex:{phase}:{sizes}:bf16:mask={mask}:score={score}")


def fields(row) -> dict[str, object]:
    """Return times of a row in µs, what ships and the fastest config."""
    kernel, base = row.kernel, row.baseline
    return {
        "default_us": base and base.time_ns / 1e3,
        "tuned_us": kernel and kernel.time_ns / 1e3,
        "gain": base.time_ns / kernel.time_ns if kernel and base else None,
        "ships": dict(row.choices[0].config),
        "config": kernel and dict(kernel.config),
    }


def sweep(gt, texts: list[str], known: dict, settings: dict, seconds: float) -> None:
    """Measure every config of some kernels, and note the fastest one's time beside that of the tuned one."""
    swept = gt.tune(texts, sampler="exhaustive", budget=2000, seconds=seconds, **settings)
    known["sweep"] = {
        row.problem.name: fields(row) | {"tuned": known.get("rows", {}).get(row.problem.name)} for row in swept.rows
    }


def in_torch_compile(case: str) -> dict[str, object]:
    """Return µs per phase with the table, without, and of scaled_dot_product_attention where that has the mask."""
    import gemmtune_inductor
    import torch
    import torch._functorch.config
    from torch.nn.attention.flex_attention import flex_attention
    from torch.nn.functional import scaled_dot_product_attention

    torch._functorch.config.donated_buffer = False  # backward runs several times per forward
    a = problem(case, CASES[case][-1][0])
    torch._dynamo.reset()
    torch.manual_seed(0)
    training = "backward" in CASES[case][-1]
    sizes = ((a.heads, a.queries, a.head_dim), (a.kv_heads, a.keys, a.head_dim), (a.kv_heads, a.keys, a.value_dim))
    inputs = [torch.randn(a.batch, *size, device="cuda", dtype=torch.bfloat16) for size in sizes]
    inputs = [each.requires_grad_(training) for each in inputs]
    mask, score = blocks(a), cap(a)

    def by_default(q, k, v):
        return flex_attention(q, k, v, score, mask, enable_gqa=True)

    def by_table(q, k, v):
        return flex_attention(q, k, v, score, mask, enable_gqa=True)

    def sdpa(q, k, v):
        return scaled_dot_product_attention(q, k, v, is_causal=a.mask == "causal", enable_gqa=True)

    gemmtune_inductor.uninstall()
    outs = {"default": (arm := torch.compile(by_default, dynamic=False))(*inputs)}
    calls = {"default": arm}
    grad = torch.randn_like(outs["default"])
    backward = lambda out: torch.autograd.grad(out, inputs, grad, retain_graph=True)  # noqa: E731
    grads = {"default": backward(outs["default"]) if training else ()}
    gemmtune_inductor.install()
    calls["table"] = torch.compile(by_table, dynamic=False, options=gemmtune_inductor.options())
    outs["table"] = calls["table"](*inputs)
    grads["table"] = backward(outs["table"]) if training else ()
    used = [[use["problem"], use["outcome"], use["detail"]] for use in gemmtune_inductor.report().to_dict()["uses"]]
    if a.mask in ("none", "causal") and a.score == "none":
        calls["sdpa"], outs["sdpa"] = sdpa, sdpa(*inputs)
    found: dict[str, object] = {"uses": used, "error": error(outs["table"], outs["default"])}
    found["errors of gradients"] = [error(*each) for each in zip(grads["table"], grads["default"], strict=True)]
    found[CASES[case][-1][0]] = timed({name: lambda call=call: call(*inputs) for name, call in calls.items()})
    if training:
        found["backward"] = timed({name: lambda out=out: backward(out) for name, out in outs.items()})
    return found


def blocks(a):
    """Return the blocks of a case's mask, written as a user writes it."""
    from torch.nn.attention.flex_attention import create_block_mask

    from gemmtune.spaces.flex.kind import tensors_read

    number = int((re.findall(r"\d+", a.mask) or ["0"])[0])
    ids = {name: its.cuda() for name, its in tensors_read(a).items()}.get("t0")
    masks = {
        "causal": lambda b, h, q, kv: q >= kv,
        "window": lambda b, h, q, kv: (q >= kv) & (q - kv < number),
        "prefix": lambda b, h, q, kv: (q >= kv) | (kv < number),
        "causal_document": lambda b, h, q, kv: (q >= kv) & (ids[q] == ids[kv]),
    }
    mask = masks.get(a.mask.partition("(")[0])
    return mask and create_block_mask(mask, None, None, a.queries, a.keys, device="cuda")


def cap(a):
    """Return a case's score function, written as a user writes it."""
    import torch

    return None if a.score == "none" else lambda s, b, h, q, kv: 50 * torch.tanh(s / 50)


def error(found, expected) -> float:
    return round(float((found.double() - expected.double()).norm() / expected.double().norm()), 5)


def timed(calls) -> dict[str, float]:
    """Return the median µs of each call with a cold L2, in alternating rounds."""
    import torch

    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    events: dict[str, list] = {name: [] for name in calls}
    for turn in range(ROUNDS + 3):
        for name, call in calls.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            flush.zero_()
            torch.cuda._sleep(1_000_000)  # the host is ahead when the first event comes
            begin.record()
            call()
            end.record()
            if turn > 2:
                events[name].append((begin, end))
    torch.cuda.synchronize()
    return {
        name: round(statistics.median(begin.elapsed_time(end) for begin, end in its) * 1e3, 2)
        for name, its in events.items()
    }


def table(known: dict, wanted) -> dict[str, object]:
    """Print a line per kernel, and return geometric means of the gains, and what is slower than the default."""
    print(f"{'case':21}{'phase':9}{'default':>9}{'tuned':>9}{'gain':>7}  in torch.compile: default, table, gain, SDPA")
    gains: dict[str, list[float]] = {}
    slower = []
    for case, phase in wanted:
        row = known.get("rows", {}).get(problem(case, phase).name) or {}
        times = known.get("compiled", {}).get(case, {}).get(phase) or {}
        gain = times["default"] / times["table"] if times else None
        for name, its in ((f"{phase}, kernel", row.get("gain")), (f"{phase}, torch.compile", gain)):
            gains.setdefault(name, []).extend([its] if its else [])
        slower += [f"{case}, {phase}"] if gain and gain < 1 / SLOWER else []
        of_row = "".join(f"{row.get(name) or float('nan'):{width}}" for name, width in WIDTHS)
        of_call = "".join(f"{times.get(name) or float('nan'):9.1f}" for name in ("default", "table"))
        print(
            f"{case:21}{phase:9}{of_row}  {of_call}{gain or float('nan'):7.3f}{times.get('sdpa') or float('nan'):9.1f}"
        )
    for name, its in known.get("sweep", {}).items():
        print(f"sweep of {name}: {its['tuned_us']} us by {its['config']}; tuned: {its['tuned']}")
    means = {name: round(statistics.geometric_mean(its), 4) if its else None for name, its in gains.items()}
    return {"device": known.get("device"), "campaign_seconds": known.get("campaign_seconds"), **means, "slower": slower}


WIDTHS = (("default_us", "9.1f"), ("tuned_us", "9.1f"), ("gain", "7.3f"))

if __name__ == "__main__":
    main()
