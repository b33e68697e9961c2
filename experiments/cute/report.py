"""Print the results as text. Usage: report.py RESULT.json."""

from __future__ import annotations

import json
import sys
from pathlib import Path

SPACES = ("cute_gemm", "quack_gemm", "triton_mm")


def print_report(results: dict) -> None:
    facts, check = results["facts"], results["check"]
    print(f"\n{facts['device']}, {facts['cores']} cores, {facts['date']}; {', '.join(facts['toolchains'].values())}")
    print("arms: " + ", ".join(f"{arm} {facts['seconds']} s" for arm, facts in results.get("arms", {}).items()))
    total = {space: sum(of.get(space, 0) for of in check["candidates"].values()) for space in ("aten", *SPACES)}
    print(f"candidates: {total}; binaries of the CuTe spaces: {check['binaries']}")
    for name, spaces in check["refused"].items():
        for space, count in spaces.items():
            print(f"{name} in {space}: {count['feasible']} of {count['points']} points; {first(count['why'])}")
    if "build" in results:
        b = results["build"]
        print(f"{b['built']} of {b['binaries']} binaries built in {b['wall_seconds']} s: {b['a_second']} a second")
        for key, config, why in b["failed"]:
            print(f"  {key} {config}: {why[:110]}")
    if "known" in results:
        measured(results["known"]["tasks"])
        prior(results["known"]["prior"])
    if "finals" in results.get("sweep", {}):
        finals(results["sweep"]["finals"])
    if "load" in results:
        load(results["load"])


def first(reasons: dict) -> str:
    return next(iter(reasons.values()), "")


def measured(tasks: dict) -> None:
    print(f"\n{'measured':<26}" + "".join(f"{space:>32}" for space in SPACES))
    for name, spaces in tasks.items():
        print(f"{name:<26}" + "".join(f"{statuses(spaces.get(space)):>32}" for space in SPACES))
    for name, spaces in tasks.items():
        for space, found in spaces.items():
            for failure in found["failures"]:
                count = len(failure["configs"])
                print(f"  {name} {space}: {count} {failure['status']}: {failure['reason'][:110]}")


def statuses(found: dict | None) -> str:
    if found is None:
        return "-"
    of_status = sorted(found["statuses"].items(), key=lambda item: item[0] != "ok")
    parts = [f"{count} {status}" for status, count in of_status]
    return ", ".join(parts + [f"{found['not_measured']} not measured"] * bool(found["not_measured"])) or "nothing"


def finals(of_problem: dict) -> None:
    print(f"\n{'mixed final, µs':<26}{'aten':>10}" + "".join(f"{s:>12}" for s in SPACES) + "  leader")
    for name, places in of_problem.items():
        for place in places:
            if "us" not in place:
                print(f"  {name}: {place.get('refuted') or place['unsettled']} {place.get('config', '')}")
        stood = [p for p in places if "us" in p]
        best = {s: next((p["us"] for p in stood if p["space"] == s), None) for s in ("aten", *SPACES)}
        print(
            f"{name:<26}{number(best['aten']):>10}"
            + "".join(f"{number(best[s]):>12}" for s in SPACES)
            + f"  {stood[0]['space'] if stood else '-'}"
        )


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def prior(shares: dict) -> None:
    tops = "".join(f"{'top ' + k:>13}" for k in ("1", "4", "8", "16"))
    print(f"\n{'prior, of the optimum':<26}{'configs/estimates':<18}{tops}   drawn")
    for name, spaces in shares.items():
        for space, found in spaces.items():
            if "reason" in found:
                print(f"{name:<26}{space:<18} {found['reason']}")
                continue
            pairs = zip(found["configs"].values(), found["estimates"].values(), strict=True)
            reached = "".join(f"{'/'.join(map(share, pair)):>13}" for pair in pairs)
            print(f"{name:<26}{space:<18}{reached}   {' '.join(map(share, found['drawn'].values()))}")


def share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def load(rows: dict) -> None:
    arms = ("cutlass", "quack", "quack_tuned", "quack_default", "eager")
    print(f"\n{'loaded, µs':<26}" + "".join(f"{arm:>14}" for arm in arms))
    for name, found in rows.items():
        print(f"{name:<26}" + "".join(f"{number(found.get(arm, {}).get('us')):>14}" for arm in arms))
    print(f"\n{'first call, s':<26}{'cutlass':>14}{'quack':>14}{'QuACK tunes':>14}")
    for name, found in rows.items():
        seconds = [number(found.get(arm, {}).get("first_call_seconds")) for arm in arms[:2]]
        seconds.append(number(found.get("quack_tuned", {}).get("seconds")))
        print(f"{name:<26}" + "".join(f"{x:>14}" for x in seconds))
    for name, found in rows.items():
        for arm, facts in found.items():
            wrong = facts.get("failure") or (not facts.get("is_the_row", True) and f"ran {facts['ran']}, not the row")
            wrong = wrong or (not facts.get("right", True) and f"error {facts['error_norm']:.1e}")
            if wrong:
                print(f"  {name} {arm}: {wrong}")


if __name__ == "__main__":
    print_report(json.loads(Path(sys.argv[1]).read_text()))
