"""Print the results as text. Usage: report.py RESULT.json."""

from __future__ import annotations

import json
import sys
from math import log
from pathlib import Path

import numpy as np


def print_report(results: dict) -> None:
    facts = results["facts"]
    print(f"{facts['device']}, {facts['toolchain']}, {facts['date']}: {facts['configs']} configs")
    if {"pass-1", "pass-2"} <= set(results):
        repeatability(results["pass-1"], results["pass-2"])
    if {"race", "do_bench", "inductor", "truth-1", "truth-2"} <= set(results):
        selection(results)
    if "rate" in results:
        throughput(results["rate"])
    if "crash" in results:
        print("crash to next result:", ", ".join(f"{s:.2f} s" for s in results["crash"]["seconds"]))


def repeatability(first: dict, second: dict) -> None:
    print("\nrepeatability        configs  median   p95  Spearman of the 20 best")
    problems = dict.fromkeys(key.split(" ", 1)[0] for key in first)
    everything = []
    for problem in problems:
        keys = [key for key in first if key.startswith(problem)]
        apart = np.array([abs(log(first[key] / second[key])) for key in keys])
        best = sorted(keys, key=lambda key: first[key] + second[key])[:20]
        rho = spearman([first[key] for key in best], [second[key] for key in best])
        print(f"{problem:<22}{len(keys):>6} {np.median(apart):>7.2%} {np.percentile(apart, 95):>6.2%} {rho:>8.3f}")
        everything.extend(apart)
    print(f"{'all':<22}{len(everything):>6} {np.median(everything):>7.2%} {np.percentile(everything, 95):>6.2%}")


def selection(results: dict) -> None:
    arms = {"race": lambda name: results["race"][name]["pick"]}
    for arm in ("do_bench", "inductor"):
        arms[arm] = lambda name, arm=arm: results[arm][name]["pick"]
    print(f"\n{'regret':<24}" + "".join(f"{name:>12}" for name in arms))
    regrets = {arm: [] for arm in arms}
    unsure = []
    for problem, first in results["truth-1"].items():
        second = results["truth-2"][problem]
        times = {config: (first[config] * second[config]) ** 0.5 for config in first}
        truth = {config: t / min(times.values()) - 1 for config, t in times.items()}
        apart = np.array([log(first[config] / second[config]) for config in first])
        unsure.extend(abs(apart - np.median(apart)))
        cells = []
        for arm, pick in arms.items():
            regrets[arm].append(truth[pick(problem)])
            cells.append(f"{regrets[arm][-1]:>12.2%}")
        race = results["race"][problem]
        print(f"{problem:<24}" + "".join(cells) + f"  bound {race['regret_bound']:.2%} ties {len(race['tie_band'])}")
    print(f"{'mean':<24}" + "".join(f"{np.mean(r):>12.2%}" for r in regrets.values()))
    print(f"{'worst':<24}" + "".join(f"{max(r):>12.2%}" for r in regrets.values()))
    print(
        f"one process's truth against the other's: median {np.median(unsure):.2%}, 95 % {np.percentile(unsure, 95):.2%}"
    )
    spent = [sum(r["screen_seconds"] + r["final_seconds"] for r in results["race"].values())]
    spent += [sum(r["seconds"] for r in results[arm].values()) for arm in ("do_bench", "inductor")]
    print(f"{'seconds':<24}" + "".join(f"{s:>12.2f}" for s in spent))


def throughput(rate: dict) -> None:
    print("\nrate                    race   with final   full  (configs/s)  launches a config   the full protocol")
    for problem, r in rate.items():
        n = r["configs"]
        with_final = n / (r["seconds"] + r["final_seconds"])
        where = (
            "the same within the tie band" if r["same_within_the_tie_band"] else f"behind by {r['full_pick_behind']}"
        )
        print(
            f"{problem:<22}{n / r['seconds']:>6.0f} {with_final:>12.0f} {n / r['full_seconds']:>6.0f}"
            f"{np.mean(r['launches']):>26.1f}   {where}"
        )


def spearman(x, y) -> float:
    ranks = [np.argsort(np.argsort(values)) for values in (x, y)]
    return float(np.corrcoef(*ranks)[0, 1])


if __name__ == "__main__":
    print_report(json.loads(Path(sys.argv[1]).read_text()))
