"""Capture every architecture of transformers, and families of timm and diffusers. Usage: run.py --out FOLDER.

Each model is captured in a process of its own, forked from one that has imported torch, on a core of its own. One line
of lines.jsonl is one capture; those that are there already are not repeated, so a run that was killed goes on. See
README.md.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SEED = 5
TRAINED = 3  # one in so many
LIMIT_SECONDS = 100  # of CPU time
MOST_BYTES = 14 * 2**30  # address space of a process
_IMPORTS = """
import gc
gc.set_threshold(200_000, 20, 50)  # that of the command line
import torch, torch._inductor.compile_fx, gemmtune.engine.consumers.inductor.capture.capture, transformers
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of lines.jsonl and result.json")
    parser.add_argument("--minutes", type=float, default=600.0, help="begin no further model after this time")
    parser.add_argument("--only", default="", help="names that contain one of these texts, with commas")
    parser.add_argument("--again", default="", help="repeat lines whose outcome or reason contains this text")
    parser.add_argument("--jobs", type=int, default=1, help="captures at a time, each on a core of its own")
    parser.add_argument("--summary", action="store_true", help="run nothing, write result.json")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    lines = read(given.out)
    if given.summary:
        from summary import write

        sys.path[:0] = [str(HERE)]
        import models

        write(given.out / "result.json", lines, ordered(models.names()))
        return 0
    sys.path[:0] = [str(HERE)]
    end = time.monotonic() + given.minutes * 60
    startup = min(cpu_seconds([sys.executable, "-c", _IMPORTS]) for _ in range(2))  # the first one may compile modules
    exec(_IMPORTS)
    import models
    import torch

    only = given.only.split(",")
    wanted = [key for key in ordered(models.names()) if any(text in key for text in only)]
    wanted = [key for key in wanted if key not in lines or (given.again and given.again in json.dumps(lines[key]))]
    torch.set_num_threads(1)
    commit = subprocess.check_output(["git", "log", "-1", "--format=%s"], cwd=HERE, text=True).strip()
    many(wanted, given.jobs, end, lambda key: write_line(given.out, one(key, startup) | {"commit": commit}))
    return 0


def many(keys: list[str], jobs: int, end: float, work: Callable[[str], None]) -> None:
    """Run a function of each key in a process of its own, `jobs` at a time; kill those that run at the end."""
    cores = sorted(os.sched_getaffinity(0))
    free, running = list(range(jobs)), dict[int, int]()
    waiting = keys[::-1]
    while (waiting or running) and time.monotonic() < end:
        if waiting and free:
            place, key = free.pop(), waiting.pop()
            pid = os.fork()
            if pid == 0:
                os.setpgid(0, 0)
                os.sched_setaffinity(0, {cores[place % len(cores)]})
                try:
                    work(key)
                finally:
                    os._exit(0)
            running[pid] = place
            continue
        pid, _ = os.waitpid(-1, os.WNOHANG)
        if pid:
            free.append(running.pop(pid))
        else:
            time.sleep(0.02)
    for pid in running:
        os.killpg(pid, signal.SIGKILL)


def write_line(folder: Path, line: dict[str, Any]) -> None:
    """Add the line of a capture to lines.jsonl, in one write."""
    file = os.open(folder / "lines.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, (json.dumps(line) + "\n").encode())
    shown = (line.get("why", "")[:150], line.get("difference", ""), line.get("seconds", ""))
    print(line["name"], line["outcome"], *shown, flush=True)


def read(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the last line of each capture."""
    found = {}
    for path in sorted(folder.glob("lines*.jsonl"), key=lambda each: each.stat().st_mtime):
        for text in path.read_text(encoding="utf-8").splitlines():
            if text.endswith("}"):
                line = json.loads(text)
                if line.get("at", 0) >= found.get(line["name"], {}).get("at", 0):
                    found[line["name"]] = line
    return found


def ordered(names: list[str]) -> list[str]:
    """Return all captures in an order that any beginning of represents all: a third of the models trained, too."""
    draw = random.Random(SEED)
    captures = [
        key for name in names for key in ((name, f"{name} --grad") if draw.randrange(TRAINED) == 0 else (name,))
    ]
    draw.shuffle(captures)
    return captures


def cpu_seconds(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def one(key: str, startup: float) -> dict[str, Any]:
    """Return the line of one capture."""
    name, _, option = key.partition(" ")
    grad = option == "--grad"
    line: dict[str, Any] = {"name": key, "at": time.time()}
    truth, _ = forked(truth_of, name, grad)
    if "inputs" not in truth:
        why = truth.get("why") or truth["died"]
        return {**line, "outcome": "not runnable", "why": why, "all": truth.get("all", [])}
    line |= {each: truth[each] for each in ("class", "dtype", "cut", "inputs", "device")}
    found, seconds = forked(captured, name, truth, grad)
    line["seconds"] = round(startup + seconds, 1)
    if "products" not in found:
        return {**line, "outcome": "refused", "why": found.get("refused") or found["died"]}
    line |= {"runs": sum(found["products"].values()), "unserved": found["unserved"]}
    from compared import difference

    apart = difference(found, truth, grad)
    if apart:
        again, _ = forked(graphs_of, name, truth, grad, "fake")
        if "products" not in again:
            again, _ = forked(graphs_of, name, truth, grad, "cpu")
        no_graphs = {"no graphs": again.get("why", again.get("died"))}
        apart_again = difference(found, again, grad) if "products" in again else no_graphs
        line["by"] = "graphs"
        if apart_again:
            both = {"difference": apart, "of graphs": apart_again}
            return {**line, "outcome": "unequal", **both, "unseen": found["unseen"]}
    return {**line, "outcome": "equal"}


def forked(work: Any, *arguments: Any) -> tuple[dict[str, Any], float]:
    """Return what a function returns in a process of its own, and the process's seconds of CPU time."""
    path = f"/tmp/model-census-{os.getpid()}.json"
    Path(path).unlink(missing_ok=True)
    pid = os.fork()
    if pid == 0:
        try:
            signal.setitimer(signal.ITIMER_PROF, LIMIT_SECONDS)
            resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
            log = os.open(f"{path}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            faulthandler.enable(log)
            found = work(*arguments)
            Path(path).write_text(json.dumps(found), encoding="utf-8")
        except BaseException as error:
            Path(path).write_text(json.dumps({"died": f"{type(error).__name__}: {str(error)[:300]}"}), encoding="utf-8")
        finally:
            os._exit(0)
    _, status, usage = os.wait4(pid, 0)
    seconds = usage.ru_utime + usage.ru_stime
    if not Path(path).exists():
        last = " ".join(Path(f"{path}.log").read_text(encoding="utf-8", errors="replace").split())[-300:]
        return {"died": f"ended by signal {status & 127} after {seconds:.0f} s: {last}"}, seconds
    return json.loads(Path(path).read_text(encoding="utf-8")), seconds


def truth_of(name: str, grad: bool) -> dict[str, Any]:
    import truth

    return truth.found_truth(name, grad)


def graphs_of(name: str, how: dict[str, Any], grad: bool, device: str) -> dict[str, Any]:
    import truth

    return truth.graphs(name, how["dtype"], how["cut"], how["inputs"], grad, device)


def captured(name: str, how: dict[str, Any], grad: bool) -> dict[str, Any]:
    """Return the products that gemmtune captures, or its refusal."""
    import gemmtune as gt

    os.environ["CENSUS"] = json.dumps({"name": name, "dtype": how["dtype"], "cut": how["cut"]})
    try:
        found = gt.capture("models:build", *how["inputs"], grad=grad, device="H200")
        found.to_toml()
    except Exception as error:
        return {"refused": f"{type(error).__name__}: {error}"[:400]}
    products: Counter[str] = Counter()
    unseen = [[each.operation, each.reason, int(each.count)] for each in found.unseen]
    for each in found.products:
        its = each.problem
        if its.kind == "grouped":
            unseen.append(["aten._grouped_mm.default", "", int(each.count)])
        else:
            products[f"{its.batch}x{its.m}x{its.n}x{its.k}:{its.name.split(':')[1]}"] += int(each.count)
    unserved = sum(each[2] for each in unseen if " of " in each[1])
    return {"products": dict(products), "unserved": unserved, "unseen": unseen}


if __name__ == "__main__":
    sys.exit(main())
