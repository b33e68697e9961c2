"""Change the source in one place at a time, and count how often the tests notice.

    make mutants ARGS="--seeds 1 2 3"
    python3 tests/mutants/run.py --rooms report cli --count 20 --workers 4

Lines are drawn at random with the seeds, a mutation of each at random, at most two per file (see mutations.py). Each
worker has a copy of the tree, and an environment whose Python, `bin/gemmtune` and entry points come from that copy, in
every child process too; the script checks that first. The Python that starts the script needs the packages that tests
import, and no gemmtune. GPUs are hidden.

First all tests run once on unchanged source, which takes a while: that tells which fail there, and are left out, and
which functions each test file reaches, in child processes too (see recording/). Then two runs judge a mutant, and the
first failure ends them: the quick ones of the file's own tests and of those that name its module, and all that reach
the line or stand in the mirrored folder (an exported loader is text of its own), quickest first, up to `--patience`
seconds of tests. A test that fails and then passes alone, on the same mutant, does not count. A mutant whose tests take
several times as long as on unchanged source is killed.

The results are two JSON files that a later call goes on from, also after Ctrl-C. Remove that of the verdicts after the
source changed; that of the unchanged source may stay while tests keep their names. Files that only a GPU or an
engine's wheels run are counted apart. Survivors need a judge: a mutant that changes nothing anybody could see goes to
judged.json with the reason, and is not drawn again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import queue
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from copies import ROOT, RUNNING, STOPPED, Copy, end
from mutations import Mutation, mutations
from reach import Reach

SOURCES = ("engine", "spaces", "objectives", "gemmtune")
JUDGED = Path(__file__).with_name("judged.json")
APART = (
    "engine/measure/timing/*",
    "engine/toolchain/occupancy.py",
    "spaces/cute/decode/kernels.py",
    "spaces/cute/decode/reduction.py",
    "spaces/cute/decode/slots.py",
    "spaces/cute/epilogue.py",
    "spaces/sglang_*.py",
    "spaces/vllm_*.py",
    "spaces/triton_source/kernels.py",
)
"""Files whose lines run on a GPU or with an engine's wheels."""
STYLE = (
    "test_mutants.py",
    "browser",
    "docs/test_documents.py",
    "test_house.py",
    "test_import_rules.py",
    "test_names.py",
    "test_packaging.py",
)
"""Tests that see no behaviour of the source, or need programs outside Python."""
SELDOM = {"swap args": 0.3, "return empty": 0.3}
"""Share of mutations kept of kinds that mostly crash at once."""
NEAR_SECONDS = 20
"""Seconds of a file's own tests, and of those that name its module, before all that reach the line."""


def room(path: str) -> str:
    if any(fnmatch(path, pattern) for pattern in APART):
        return "GPU or engines"
    parts = path.split("/")
    return parts[0] if parts[0] != "engine" else parts[1].removesuffix(".py")


@dataclass(frozen=True)
class Mutant:
    """A mutation of a file, and the line's text before and after it."""

    path: str
    mutation: Mutation
    before: str
    after: str

    @property
    def key(self) -> str:
        return f"{self.path}:{self.mutation.line} {self.mutation.kind}: {self.before} -> {self.after}"


def mutants(path: str) -> list[Mutant]:
    """All mutants of a file that nobody has judged."""
    source = (ROOT / path).read_bytes()
    judged = {(each["file"], each["before"], each["after"]) for each in json.loads(JUDGED.read_text())}
    found = []
    for each in mutations(source):
        before, after = (text.decode().splitlines()[each.line - 1].strip() for text in (source, each.applied(source)))
        if (path, before, after) not in judged:
            found.append(Mutant(path, each, before, after))
    return found


def drawn(candidates: dict[str, list[Mutant]], seed: int, count: int, taken: Counter[str]) -> list[Mutant]:
    """Draw mutants: a line at random, one of its mutations at random, at most two per file over all seeds."""
    rng = random.Random(seed)
    lines: dict[tuple[str, int], list[Mutant]] = {}
    for each in (each for path in sorted(candidates) for each in candidates[path]):
        if rng.random() < SELDOM.get(each.mutation.kind, 1):
            lines.setdefault((each.path, each.mutation.line), []).append(each)
    order, found = list(lines), []
    rng.shuffle(order)
    for path, line in order:
        if len(found) < count and taken[path] < 2:
            found.append(rng.choice(lines[path, line]))
            taken[path] += 1
    return found


def mirrored(path: str) -> Path:
    """Return the folder of tests that mirrors a source file's folder."""
    file = Path(path)
    return Path("tests") / (file.parent if file.parts[0] != "gemmtune" else "engine/cli")


def near(path: str) -> list[str]:
    """Return the files of tests that are the source file's own, and then those that name its module."""
    file, texts = Path(path), {p.relative_to(ROOT): p.read_text() for p in (ROOT / "tests").rglob("test_*.py")}
    folder = mirrored(path)
    dotted = ".".join(("gemmtune", *file.with_suffix("").parts)).replace("gemmtune.gemmtune", "gemmtune")
    parent, _, stem = dotted.removesuffix(".__init__").rpartition(".")
    imported = rf"from {re.escape(parent)} import (?:\([^)]*|[^\n(]*)\b{stem}\b"
    named = re.compile(rf"{re.escape(parent)}\.{stem}\b|{imported}")
    own = {test for test in texts if test.parent == folder and test.name.startswith(f"test_{stem}")}
    naming = {test for test, text in texts.items() if named.search(text)} - own
    return [*sorted(map(str, own)), *sorted(map(str, naming))]


class Run:
    """Verdicts of mutants, kept in a file as they come."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.out, self.unchanged, self.limit, self.patience = given.out, given.unchanged, given.limit, given.patience
        self.lock, self.reach = threading.Lock(), Reach()
        paths = [path for folder in SOURCES for path in sorted((ROOT / folder).rglob("*.py"))]
        digest = hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()
        self.kept = json.loads(self.out.read_text()) if self.out.exists() else {"source": digest, "mutants": {}}
        if self.kept["source"] != digest:
            sys.exit(f"{self.out} is of other source; remove it, or name another file with --out")

    def keep(self) -> None:
        written(self.out, self.kept)

    def left_out(self) -> list[str]:
        """Arguments that leave tests out: a file that does not import is ignored."""
        return [f"--deselect={t}" if "::" in t else f"--ignore={t}" for t in self.kept.get("failed", [])]

    def look_at(self, copy: Copy, workers: int) -> None:
        """Run all tests on unchanged source, and note those that fail, and what each file reaches."""
        if not self.unchanged.exists():
            lines = copy.folder / "reach"
            style = [f"--ignore=tests/{name}" for name in STYLE]
            arguments = [*style, *spread(workers), "--continue-on-collection-errors", "tests"]
            status, failed, output = copy.tests(arguments, self.limit, lines)
            if status not in (0, 1):
                sys.exit(f"tests of the unchanged source ended with {status}:\n{output[-3000:]}")
            written(self.unchanged, {"failed": failed} | Reach.read(lines.read_text()).to_json())
        found = json.loads(self.unchanged.read_text())
        self.reach = Reach.of_json(found)
        self.leave_out(found["failed"])

    def leave_out(self, tests: list[str]) -> None:
        with self.lock:
            self.kept["failed"] = sorted({*self.kept.get("failed", ()), *tests})
            self.keep()
        for name in tests:
            print(f"left out, fails on unchanged source: {name}", flush=True)

    def stages(self, mutant: Mutant) -> dict[str, list[str]]:
        """Test files of both runs, the quickest of the second first."""
        seconds, soon, reaching, spent = self.reach.seconds, [], [], 0.0
        for test in near(mutant.path):
            if seconds.get(test, 0) <= NEAR_SECONDS - sum(seconds.get(each, 0) for each in soon):
                soon.append(test)
        style = tuple(f"tests/{name}" for name in STYLE)
        found = {*self.reach.of(mutant.path, (ROOT / mutant.path).read_bytes(), mutant.mutation.line)}
        found |= {*near(mutant.path), *(each for each in seconds if each.startswith(f"{mirrored(mutant.path)}/"))}
        for test in sorted(found, key=lambda each: (seconds.get(each, 0), each)):
            if test not in soon and not test.startswith(style) and (ROOT / test).exists():
                spent += seconds.get(test, 0)
                reaching += [test] if spent <= self.patience else []
        return {name: tests for name, tests in {"near": soon, "reaching": reaching}.items() if tests}

    def judge(self, mutant: Mutant, copies: queue.Queue[Copy]) -> None:
        """Run the stages for one mutant, unless its verdict is known."""
        note = self.kept["mutants"].setdefault(mutant.key, {"room": room(mutant.path), "passed": []})
        if "verdict" in note or STOPPED.is_set():
            return
        copy, source = copies.get(), (ROOT / mutant.path).read_bytes()
        try:
            copy.write(mutant.path, mutant.mutation.applied(source))
            for stage, tests in self.stages(mutant).items():
                if stage not in note["passed"]:
                    by = self.failing(copy, tests, mutant.path)
                    if STOPPED.is_set():
                        return
                    note |= (
                        {"verdict": "killed", "stage": stage, "by": by} if by else {"passed": [*note["passed"], stage]}
                    )
                    if by:
                        break
            note.setdefault("verdict", "survived")
        finally:
            copy.write(mutant.path, source)
            copies.put(copy)
            with self.lock:
                self.keep()
        print(f"{note['verdict']:8} {note.get('stage', ''):8} {mutant.key}", flush=True)

    def failing(self, copy: Copy, tests: list[str], path: str) -> str:
        """Return one of the tests that fails, alone too, and not on unchanged source; empty if there is none."""
        arguments, limit = ["-x"], 120 + 5 * sum(self.reach.seconds.get(test, 0) for test in tests)
        for _ in range(5):
            status, failed, output = copy.tests([*self.left_out(), *arguments, *tests], limit)
            if status in (0, 5):
                return ""
            if status is None or not failed:
                return "the time limit" if status is None else (output.strip().splitlines() or ["?"])[-1]
            if copy.tests(failed, self.limit)[0] == 0:  # it failed by chance
                arguments += [f"--deselect={name}" for name in failed]
                continue
            mutated = (copy.tree / path).read_bytes()
            copy.write(path, (ROOT / path).read_bytes())
            if copy.tests(failed, self.limit)[0] == 0:
                return failed[0]
            copy.write(path, mutated)
            self.leave_out(failed)
        return ""

    def table(self, keys: list[str]) -> str:
        """Render the counts per room, and the survivors."""
        rows: dict[str, Counter[str]] = {}
        for note in (self.kept["mutants"].get(key, {}) for key in keys):
            if "verdict" in note:
                for name in {note["room"], "all" if note["room"] != "GPU or engines" else note["room"]}:
                    rows.setdefault(name, Counter())[note["verdict"]] += 1
        lines = [f"\n{'room':16} mutants killed survived rate"]
        for name in sorted(rows, key=lambda name: (name == "all", name)):
            n, killed = rows[name].total(), rows[name]["killed"]
            lines.append(f"{name:16} {n:7} {killed:6} {n - killed:8} {killed / n:4.0%}")
        lines += ["", *(f"survived: {k}" for k in keys if self.kept["mutants"].get(k, {}).get("verdict") == "survived")]
        return "\n".join(lines)


def written(path: Path, content: object) -> None:
    """Write a JSON file, whole or not at all."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(content, indent=1) + "\n")
    partial.replace(path)


def spread(processes: int) -> list[str]:
    """Arguments that spread tests over processes, where xdist is installed."""
    return ["-n", str(processes), "--dist", "loadgroup"] if processes > 1 and find_spec("xdist") else []


def chosen(given: argparse.Namespace) -> list[Mutant]:
    """Mutants that the arguments ask for."""
    paths = [str(p.relative_to(ROOT)) for folder in SOURCES for p in sorted((ROOT / folder).rglob("*.py"))]
    if given.only:
        lines = {(path, int(line)) for path, _, line in (each.rpartition(":") for each in given.only)}
        return [each for path in dict(sorted(lines)) for each in mutants(path) if (path, each.mutation.line) in lines]
    rooms = {room(path) for path in paths}
    if unknown := {*(given.rooms or ())} - rooms:
        sys.exit(f"no room {', '.join(sorted(unknown))}; known: {', '.join(sorted(rooms))}")
    candidates = {path: mutants(path) for path in paths if not given.rooms or room(path) in given.rooms}
    taken: Counter[str] = Counter()
    shares = [given.count // len(given.seeds) + (n < given.count % len(given.seeds)) for n in range(len(given.seeds))]
    found = [each for s, n in zip(given.seeds, shares, strict=True) for each in drawn(candidates, s, n, taken)]
    return list({each.key: each for each in found}.values())


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--seeds", nargs="+", type=int, default=[1], metavar="N", help="seeds that draw the mutants")
    arguments.add_argument("--count", type=int, default=120, help="mutants in all, shared by the seeds")
    arguments.add_argument("--rooms", nargs="+", help="folders of engine, or spaces, objectives, gemmtune")
    arguments.add_argument("--only", nargs="+", metavar="PATH:LINE", help="all mutants of these lines")
    arguments.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="mutants at a time")
    arguments.add_argument("--patience", type=float, default=900, help="seconds of tests that reach a mutant's line")
    arguments.add_argument("--limit", type=float, default=3600, help="seconds for all tests on unchanged source")
    arguments.add_argument("--folder", type=Path, help="folder for the workers' copies, which are removed at the end")
    arguments.add_argument("--out", type=Path, default=Path("mutants.json"), help="keeps the verdicts")
    unchanged = Path("mutants-unchanged.json")
    arguments.add_argument("--unchanged", type=Path, default=unchanged, help="keeps what tests do on unchanged source")
    given = arguments.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="mutants-", dir=given.folder))  # short: sockets of tests lie in it
    folder.chmod(0o755)  # a database server of another user works in it
    run, asked = Run(given), chosen(given)
    for number in (signal.SIGINT, signal.SIGTERM):  # a job in the background ignores SIGINT, and so would its tests
        signal.signal(number, signal.default_int_handler)
    copies: queue.Queue[Copy] = queue.Queue()
    pool = ThreadPoolExecutor(given.workers)
    try:
        first = Copy(folder / "0")
        run.look_at(first, given.workers)
        for each in (first, *pool.map(Copy, (folder / str(n) for n in range(1, given.workers)))):
            copies.put(each)
        for _ in pool.map(lambda each: run.judge(each, copies), asked):
            pass
    except KeyboardInterrupt:
        print(f"stopped; the next call goes on from {given.out}", flush=True)
        STOPPED.set()
        for group in [*RUNNING]:
            end(group)
    finally:
        pool.shutdown(cancel_futures=True)
        shutil.rmtree(folder, ignore_errors=True)
    print(run.table([each.key for each in asked]))
    return 130 if STOPPED.is_set() else 0


if __name__ == "__main__":
    sys.exit(main())
