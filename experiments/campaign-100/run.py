"""Tune a hundred problems from nothing, and account for the cost. Usage: run.py --out FOLDER [--arms ...].

Needs a GPU, and gemmtune with its extra `triton`; the arm `cute` needs the extra `cute`. Each arm is a process; a time
limit ends one arm, and the others go on. Without a GPU the script rehearses on the recorded problems, and its times
mean nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import geometric_mean

import account
import choose
import rehearsal
from account import Resources
from rehearsal import HERE, gpu
from watch import watch, within

from gemmtune.engine.platform.gpu_info import equal_gpus
from gemmtune.engine.store.database import Database
from gemmtune.engine.tables.table_file import read_table

GEMMTUNE = (sys.executable, "-m", "gemmtune", "tune")
RELOADED = 10
AGAIN_SECONDS, WALL_SECONDS = 5.0, 150.0
MEAN, WORST, NAMED = 0.99, 0.96, 0.95
SPACES = {
    "cute": ("triton_mm", "cute_gemm", "quack_gemm"),
    "decode": ("triton_mm", "cute_gemv", "cute_splitk"),
}


def main() -> int:
    given = arguments()
    out: Path = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    print(device_line(), flush=True)
    end = time.monotonic() + given.seconds
    for name in given.arms:
        left = end - time.monotonic()
        if left < 5:
            print(f"== {name}: no time left")
            continue
        print(f"== {name}", flush=True)
        began = time.monotonic()
        said = ARMS[name](out, left, given)
        print(f"== {name}: {time.monotonic() - began:.1f} s, {said}", flush=True)
    print("\n".join(summary(out)))
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="where tables and results go")
    parser.add_argument(
        "--arms", nargs="*", choices=ARMS, default=ARMS, help="only these (default: all, in this order)"
    )
    parser.add_argument("--seconds", type=float, default=1700, help="for everything together (default 1700)")
    parser.add_argument("--problem", help="of the arm exhaustive (default: a swept one of medium m)")
    parser.add_argument("tune", nargs="*", help="options for the campaigns, behind --: -- --builders 8")
    return parser.parse_args()


def campaign(out: Path, left: float, given: argparse.Namespace) -> str:
    """Run the command from an empty database."""
    return tuned(out, "campaign", left, given)


def tuned(out: Path, name: str, left: float, given: argparse.Namespace, options: Sequence[str] = ()) -> str:
    """Run a campaign from an empty database into OUT/NAME, with its account in OUT/NAME.json."""
    folder, events = out / name, out / f"{name}.events.jsonl"
    shutil.rmtree(folder, ignore_errors=True)
    events.unlink(missing_ok=True)
    watched = watch(command(folder, events, given, options), left)
    if not (folder / "measurements.db").exists():
        return f"status {watched.status}, nothing measured"
    have = Resources(len(os.sched_getaffinity(0)), max(len(equal_gpus()), 1), max(watched.builders, 1))
    found = account.account(watched, folder, events, have, rehearsal.truths(out))
    (out / f"{name}.json").write_text(json.dumps(facts() | found, separators=(",", ":")) + "\n")
    return f"status {watched.status}, {watched.wall_seconds:.1f} s from the command to the table"


def command(folder: Path, events: Path, given: argparse.Namespace, options: Sequence[str] = ()) -> list[str]:
    places = ("--out", str(folder), "--events", str(events))
    return [*GEMMTUNE, *rehearsal.campaign(), *given.tune, *options, *places]


def again(out: Path, left: float, given: argparse.Namespace) -> str:
    """Run the same command again: it measures nothing, and writes an equal table."""
    folder = out / "campaign"
    if not (folder / "table.json").exists():
        return "needs the arm campaign"
    before = held(folder)
    watched = within(command(folder, out / "campaign.events.jsonl", given), left)
    after = held(folder)
    found = {
        "seconds": round(watched.wall_seconds, 2),
        "limit_seconds": AGAIN_SECONDS,
        "status": watched.status,
        "new_measurements": after[0] - before[0],
        "new_finals": after[1] - before[1],
        "same_rows": after[2] == before[2],
    }
    (out / "again.json").write_text(json.dumps(facts() | found) + "\n")
    return json.dumps(found)


def held(folder: Path) -> tuple[int, int, object]:
    """Return measurements and finals of the database, and the table's rows."""
    with Database.open(folder / "measurements.db", read_only=True) as store:
        number = len(store)
        return number, len(store.finals()), read_table(folder / "table.json").rows


def reload(out: Path, left: float, given: argparse.Namespace) -> str:
    """Load the exported table in a process without gemmtune, for ten problems drawn at random."""
    table = out / "campaign" / "inductor"
    if not (table / "inductor_table.json").exists():
        return "needs the arm campaign"
    names = sorted(row.problem.name for row in read_table(out / "campaign" / "table.json").rows)
    drawn = random.Random(choose.SEED).sample(names, min(RELOADED, len(names)))
    return inductor(out, "reload", drawn, left, "--table", str(table))


def reload_decode(out: Path, left: float, given: argparse.Namespace) -> str:
    """Load the table of the arm decode likewise, for all problems whose row is a kernel of a CuTe space."""
    folder = out / "decode"
    if not (folder / "inductor" / "inductor_table.json").exists():
        return "needs the arm decode"
    rows = [row for row in read_table(folder / "table.json").rows if row.choices[0].space in SPACES["decode"][1:]]
    names = sorted(row.problem.name for row in rows)
    drawn = random.Random(choose.SEED).sample(names, len(names))  # in any order, for the time may be over
    return inductor(out, "reload_decode", drawn, left, "--table", str(folder / "inductor"))


def default(out: Path, left: float, given: argparse.Namespace) -> str:
    """Run Inductor's DEFAULT autotuning of all problems."""
    return inductor(out, "default", all_names(), left)


def exhaustive(out: Path, left: float, given: argparse.Namespace) -> str:
    """Run Inductor's EXHAUSTIVE autotuning of one problem."""
    return inductor(out, "exhaustive", [given.problem or one_of_medium_m()], left)


def inductor(out: Path, name: str, problems: Sequence[str], left: float, *options: str) -> str:
    result = out / f"{name}.json"
    result.unlink(missing_ok=True)
    arm = name.partition("_")[0]
    watched = within([sys.executable, str(HERE / "arm.py"), arm, str(result), *problems, *options], left)
    return f"status {watched.status}"


def all_names() -> list[str]:
    return [c.name for c in choose.problems()] if gpu() is not None else rehearsal.truth_names()


def one_of_medium_m() -> str:
    """Return a swept problem of medium m, so that its optimum is known."""
    return next(c.name for c in choose.truths() if c.range == "medium")


def builds(out: Path, left: float, given: argparse.Namespace) -> str:
    """Split builds into their parts, on one core."""
    database = out / "campaign" / "measurements.db"
    if not database.exists():
        return "needs the arm campaign"
    watched = within([sys.executable, str(HERE / "builds.py"), str(database), str(out / "builds.json")], left)
    return f"status {watched.status}"


def meet(out: Path, left: float, given: argparse.Namespace) -> str:
    """Hold finals between the campaign's choices and the best of the sweeps."""
    if not (out / "campaign" / "table.json").exists() or gpu() is None:
        return "needs the arm campaign, and a GPU"
    watched = within([sys.executable, str(HERE / "meet.py"), str(out), str(out / "meet.json")], left)
    return f"status {watched.status}"


def random_search(out: Path, left: float, given: argparse.Namespace) -> str:
    """Run a random search for as long as the campaign searched, with unlimited evaluations."""
    if not (out / "campaign.json").exists():
        return "needs the arm campaign"
    found = json.loads((out / "campaign.json").read_text())
    seconds = f"{found['search_seconds'] * found['gpus']:.1f}"
    limits = ("--sampler", "random", "--budget", "1000000", "--gpu-seconds", seconds)
    return tuned(out, "random", left, given, limits)


def with_spaces(name: str, out: Path, left: float, given: argparse.Namespace) -> str:
    """Run the campaign with the spaces of this arm."""
    return tuned(out, name, left, given, [word for space in SPACES[name] for word in ("--space", space)])


ARMS: dict[str, Callable[[Path, float, argparse.Namespace], str]] = {
    "campaign": campaign,
    "again": again,
    "meet": meet,
    "reload": reload,
    "default": default,
    "builds": builds,
    "random": random_search,
    "exhaustive": exhaustive,
    **{name: partial(with_spaces, name) for name in SPACES},
    "reload_decode": reload_decode,
}


def facts() -> dict:
    device = gpu()
    return {
        "device": device.name if device else "none: a rehearsal",
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
    }


def device_line() -> str:
    found, cores = facts(), len(os.sched_getaffinity(0))
    return f"{found['device']}, {max(len(equal_gpus()), 1)} GPU, {cores} cores, Python {found['python']}"


def summary(out: Path) -> list[str]:
    """Summarise the results of every arm; an arm without a result is left out."""
    found = {name: json.loads(path.read_text()) for name in ARMS if (path := out / f"{name}.json").exists()}
    truths = rehearsal.truths(out)
    lines = ["", f"summary: {len(truths)} sweeps to judge by"]
    for name in ("campaign", "random", *SPACES):
        if name in found:
            judge(out / name, found[name], truths)
            (out / f"{name}.json").write_text(json.dumps(found[name], separators=(",", ":")) + "\n")
            lines += account.lines(name, found[name])
    if {"campaign", "builds"} <= set(found):
        lines += builds_lines(found["campaign"], found["builds"])
    if "again" in found:
        lines.append(f"again: {json.dumps(found['again'])}")
    if "meet" in found:
        apart = {row["problem"]: row["of_optimum"] for row in found["meet"]["rows"]}
        lines.append(f"met the best of the sweeps: {json.dumps(apart)}")
    for name in ("default", "exhaustive", "reload", "reload_decode"):
        if name in found:
            lines += inductor_lines(name, found[name], found.get("campaign"))
    if all(found.get(name, {}).get("problems") for name in ("campaign", "random")):
        best = {row["problem"]: row["triton_us"] for row in found["campaign"]["problems"]}
        both = [row for row in found["random"]["problems"] if row["triton_us"] and best.get(row["problem"])]
        ratios = [row["triton_us"] / best[row["problem"]] for row in both]
        lines.append(f"random over campaign, best of triton_mm: {geometric_mean(ratios):.4f} (geo. mean)")
    (out / "result.json").write_text(json.dumps(found, separators=(",", ":")) + "\n")
    return [*lines, "", *verdicts(found)]


def verdicts(found: dict) -> list[str]:
    """Return each requirement with its result."""
    rows: list[tuple[str, str, str, bool]] = []
    if found.get("campaign", {}).get("problems"):
        tuned = found["campaign"]
        judged = [row["of_optimum"] for row in tuned["problems"] if row["of_optimum"] is not None]
        unsettled = sum(row["regret_bound"] is None for row in tuned["problems"])
        named = min(tuned[f"{kind}_seconds"]["named"] for kind in ("cores", "gpus"))
        wall = tuned["wall_seconds"]
        rows.append(
            ("seconds from the command to the table", f"{wall:.1f}", f"<= {WALL_SECONDS:g}", wall <= WALL_SECONDS)
        )
        rows.append(("rows without a final", f"{unsettled}", "0", not unsettled))
        rows.append(("named share of wall × resources", f"{named:.3f}", f">= {NAMED}", named >= NAMED))
        met = [row["of_optimum"] for row in found.get("meet", {}).get("rows", [])]
        for name, fractions in (("by the sweeps' looks", judged), ("by finals with their best", met)):
            if fractions:
                mean, worst = sum(fractions) / len(fractions), min(fractions)
                rows.append(
                    (f"of the optimum {name}, mean of {len(fractions)}", f"{mean:.4f}", f">= {MEAN}", mean >= MEAN)
                )
                rows.append((f"of the optimum {name}, worst", f"{worst:.4f}", f">= {WORST}", worst >= WORST))
    if "again" in found:
        again = found["again"]
        idle = not again["new_measurements"] and not again["new_finals"] and again["same_rows"]
        rows.append(
            (
                "seconds of the second run",
                f"{again['seconds']}",
                f"< {AGAIN_SECONDS:g}",
                again["seconds"] < AGAIN_SECONDS,
            )
        )
        rows.append(("the second run measures nothing", str(idle), "True", idle))
    for name, what in (("reload", "rows"), ("reload_decode", "CuTe rows")):
        if name in found:
            reloaded = found[name]["rows"]
            held = sum(not row["failures"] for row in reloaded)
            asked = RELOADED if name == "reload" else len(reloaded)
            rows.append((f"{what} that hold in a fresh process", str(held), str(asked), held >= asked))
    return [f"{'ok   ' if ok else 'SHORT'} {what:<54} {came:>8}   asked {asked}" for what, came, asked, ok in rows]


def judge(folder: Path, found: dict, truths: dict) -> None:
    """Return the problems compared with the present sweeps; none if the campaign was cut off before its table."""
    if not found["problems"]:
        return
    rows = {row.problem.name: row for row in read_table(folder / "table.json").rows}
    for judged in found["problems"]:
        judged["of_optimum"] = account.of_optimum(rows[judged["problem"]], truths.get(judged["problem"]))


def builds_lines(found: dict, split: dict) -> list[str]:
    """Render the builders' seconds by part, at the shares that builds.py measured."""
    seconds = found["builds"]["seconds"]
    parts = ", ".join(f"{part} {share * seconds:.0f} s ({share:.0%})" for part, share in split["shares"].items())
    return [
        f"in the builders: {parts}, by the shares of {split['configs']} builds on one core ("
        f"{split['seconds_a_build']:.3f} s each)",
        "  of it " + ", ".join(f"{stage} {share:.0%}" for stage, share in split["shares_of_compiling"].items()),
    ]


def inductor_lines(name: str, found: dict, tuned_by_us: dict | None) -> list[str]:
    rows = found["rows"]
    compiling = sum(row["compile_seconds"] for row in rows)
    ratio = geometric_mean(row["eager_us"] / row["compiled_us"] for row in rows)
    lines = [
        f"{name}: {len(rows)} problems, {compiling:.1f} s compiling, {found['seconds']:.0f} s with our timing, "
        f"{sum(sum(row['benchmarks'].values()) for row in rows)} counts of benchmarks, ATen over chosen {ratio:.4f}, "
        f"{sum(row['chosen'] == 'aten' for row in rows)} × ATen"
    ]
    best = {row["problem"]: row for row in tuned_by_us["problems"]} if tuned_by_us else {}
    for group in choose.RANGES:
        of = [row for row in rows if best.get(row["problem"], {}).get("range") == group]
        of = [row for row in of if best[row["problem"]]["baseline_us"]]
        if of and not name.startswith("reload"):
            theirs = geometric_mean(row["eager_us"] / row["compiled_us"] for row in of)
            ours = geometric_mean(best[r["problem"]]["baseline_us"] / best[r["problem"]]["best_us"] for r in of)
            lines.append(f"  {group}: ATen over chosen {theirs:.4f}, over gemmtune's best {ours:.4f}")
    if name.startswith("reload"):
        failed = [f"{row['problem']}: {'; '.join(row['failures'])}" for row in rows if row["failures"]]
        lines.append(
            f"  {len(rows) - len(failed)} of {len(rows)} rows hold, apart by up to "
            f"{max(abs(row['apart']) for row in rows):.1%}" + "".join(f"\n  {text}" for text in failed)
        )
    return lines


if __name__ == "__main__":
    sys.exit(main())
