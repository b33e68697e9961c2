"""Change the source in one place at a time, and count how often the tests notice.

    make mutants ARGS="--seeds 1 2 3"
    python3 tests/mutants/run.py --rooms report cli --count 20 --workers 4

Lines are drawn at random with the seeds, a mutation of each at random, at most two per file (see mutations.py). Each
worker has a copy of the tree, and an environment whose Python, `bin/gemmtune` and entry points come from that copy, in
every child process too; the script checks that first. The Python that starts the script needs the packages that tests
import, and no gemmtune. GPUs are hidden.

Tests run in stages, and the first failure ends them: the file's own tests, tests that name its module, its folder's
tests, all tests that are not marked `slow`, and, where `--stages` names it, those that are. A test that fails on
unchanged code is left out from the start and printed; one that fails and then passes alone, on the same mutant, does
not count. A mutant whose tests run past the limit is killed.

The result is a JSON file that a later call goes on from, also after Ctrl-C; remove it after the source changed. Files
that only a GPU or an engine's wheels run are counted apart. Survivors need a judge: a mutant that changes nothing
anybody could see goes to judged.json with the reason, and is not drawn again.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import tomllib
import venv
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from mutations import Mutation, mutations

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("engine", "spaces", "objectives", "gemmtune")
JUDGED = Path(__file__).with_name("judged.json")
APART = (
    "engine/measure/timing/*",
    "engine/platform/occupancy.py",
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
LEFT = shutil.ignore_patterns(".git", ".venv*", ".releases", ".*_cache", "__pycache__", "out", "build", "*.egg-info")
SELDOM = {"swap args": 0.3, "return empty": 0.3}
"""Share of mutations kept of kinds that mostly crash at once."""
STAGES = {"own": 120, "naming": 180, "folder": 300}
"""Seconds after which a stage gives way to the next."""
MARKS = {"all": "not gpu and not slow", "slow": "not gpu and slow"}
"""Stages of the whole suite, with the marks of their tests."""
PROOF = """
import gemmtune.engine as e, gemmtune.spaces as s, sys
from importlib.metadata import entry_points
kinds = [each.load() for each in entry_points(group="gemmtune.samplers")]
assert len(kinds) > 5
files = [e.__file__, s.__file__, *(sys.modules[kind.__module__].__file__ for kind in kinds)]
assert all(file.startswith(sys.argv[1]) for file in files), files
"""


class Copy:
    """A copy of the tree, with a Python whose gemmtune is that copy."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.tree, self.written = folder, folder / "t", int(time.time())
        shutil.copytree(ROOT, self.tree, symlinks=True, ignore=LEFT)
        venv.create(folder / "v", symlinks=True)
        self.python = folder / "v" / "bin" / "python"
        own = {str(ROOT), str(Path(__file__).parent), sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
        packages = [each for each in sys.path if each not in own and not each.endswith((".zip", "lib-dynload"))]
        [site] = (folder / "v").glob("lib/*/site-packages")
        (site / "copy.pth").write_text("\n".join([str(self.tree), *filter(None, packages)]) + "\n")
        self.install()
        bare = {"PATH": os.environ["PATH"]}
        subprocess.run([self.python, "-c", PROOF, f"{self.tree}/"], env=bare, cwd="/", check=True)
        command = [self.python.with_name("gemmtune"), "--help"]
        subprocess.run(command, env=bare, cwd="/", check=True, stdout=subprocess.DEVNULL)

    def install(self) -> None:
        """Write what an installation would: metadata with the entry points of pyproject.toml, and the command."""
        project = tomllib.loads((self.tree / "pyproject.toml").read_text())["project"]
        metadata = self.tree / f"gemmtune-{project['version']}.dist-info"
        metadata.mkdir()
        lines = ["Metadata-Version: 2.1", "Name: gemmtune", f"Version: {project['version']}"]
        lines += [f"Requires-Dist: {each}" for each in project["dependencies"]]
        for extra, needed in project["optional-dependencies"].items():
            parts = [(each.partition(";")[0].strip(), each.partition(";")[2].strip()) for each in needed]
            lines.append(f"Provides-Extra: {extra}")
            lines += [
                f"Requires-Dist: {n}; {f'{marker} and ' if marker else ''}extra == '{extra}'" for n, marker in parts
            ]
        (metadata / "METADATA").write_text("\n".join(lines) + "\n")
        groups = {"console_scripts": project["scripts"], **project["entry-points"]}
        text = "\n".join(f"[{g}]\n" + "\n".join(f"{n} = {v}" for n, v in each.items()) for g, each in groups.items())
        (metadata / "entry_points.txt").write_text(text + "\n")
        command = self.python.with_name("gemmtune")
        command.write_text(f"#!{self.python}\nimport sys\nfrom gemmtune.__main__ import main\nsys.exit(main())\n")
        command.chmod(0o755)
        for tool in Path(sys.executable).parent.glob("lint-imports"):
            shutil.copy(tool, command.with_name(tool.name))

    def write(self, path: str, source: bytes) -> None:
        """Write a file, with a time of its own: bytecode of equal size and second would be used again."""
        (self.tree / path).write_bytes(source)
        self.written += 2
        os.utime(self.tree / path, (self.written, self.written))

    def tests(self, arguments: list[str], seconds: float, marks: str = "not gpu") -> tuple[int | None, list[str], str]:
        """Run pytest; return its status, the tests that failed, and its output. No status: it ran past the limit."""
        if STOPPED.is_set():
            return None, [], ""
        temporary = self.folder / "x"
        shutil.rmtree(temporary, ignore_errors=True)
        (temporary / "home").mkdir(parents=True)
        environment = {n: v for n, v in os.environ.items() if n not in ("PYTHONPATH", "PYTHONHOME", "PYTEST_ADDOPTS")}
        environment |= {"TMPDIR": str(temporary), "HOME": str(temporary / "home"), "CUDA_VISIBLE_DEVICES": ""}
        environment |= {"OMP_NUM_THREADS": "1", "PATH": f"{self.python.parent}:{os.environ['PATH']}"}
        cache = ["-o", f"cache_dir={temporary}/cache", "--basetemp", f"{temporary}/b"]
        command = [self.python, "-m", "pytest", "-q", "--tb=short", "-m", marks, *cache, *arguments]
        with (self.folder / "log").open("w+") as log:
            process = subprocess.Popen(
                command,
                cwd=self.tree,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            RUNNING.add(process.pid)
            try:
                status = process.wait(seconds)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                RUNNING.discard(process.pid)
                end(process.pid)
                process.wait()
            log.seek(0)
            output = log.read()
        failed = temporary / "cache" / "v" / "cache" / "lastfailed"
        names = json.loads(failed.read_text()) if failed.exists() else {}
        return status, [re.sub(r"@[^\]]*$", "", name) for name in names], output


RUNNING: set[int] = set()
STOPPED = threading.Event()


def end(group: int) -> None:
    """Kill the processes of a run of pytest that are left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


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


def stages(path: str) -> dict[str, list[str]]:
    """Files and folders of tests for a source file, those that notice soonest first."""
    file, texts = Path(path), {p.relative_to(ROOT): p.read_text() for p in (ROOT / "tests").rglob("test_*.py")}
    folder = Path("tests") / (file.parent if file.parts[0] != "gemmtune" else "engine/cli")
    dotted = ".".join(("gemmtune", *file.with_suffix("").parts)).replace("gemmtune.gemmtune", "gemmtune")
    parent, _, stem = dotted.removesuffix(".__init__").rpartition(".")
    imported = rf"from {re.escape(parent)} import (?:\([^)]*|[^\n(]*)\b{stem}\b"
    named = re.compile(rf"{re.escape(parent)}\.{stem}\b|{imported}")
    own = {test for test in texts if test.parent == folder and test.name.startswith(f"test_{stem}")}
    found = {"own": own, "naming": {test for test, text in texts.items() if named.search(text)} - own}
    if (ROOT / folder).is_dir() and folder != Path("tests/engine"):
        found["folder"] = {folder}
    suite = {name: ["tests"] for name in MARKS}
    return {name: sorted(map(str, tests)) for name, tests in found.items() if tests} | suite


class Run:
    """Verdicts of mutants, kept in a file as they come."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.out, self.limit, self.split, self.stages = given.out, given.limit, given.split, given.stages
        self.lock = threading.Lock()
        paths = [path for folder in SOURCES for path in sorted((ROOT / folder).rglob("*.py"))]
        digest = hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()
        self.kept = json.loads(self.out.read_text()) if self.out.exists() else {"source": digest, "mutants": {}}
        if self.kept["source"] != digest:
            sys.exit(f"{self.out} is of other source; remove it, or name another file with --out")

    def keep(self) -> None:
        partial = self.out.with_suffix(".partial")
        partial.write_text(json.dumps(self.kept, indent=1) + "\n")
        partial.replace(self.out)

    def left_out(self) -> list[str]:
        """Arguments that leave tests out: a file that does not import is ignored."""
        style = [f"--ignore=tests/{name}" for name in STYLE]
        return style + [f"--deselect={t}" if "::" in t else f"--ignore={t}" for t in self.kept.get("failed", [])]

    def unchanged(self, copy: Copy, workers: int) -> None:
        """Run all tests that will be used on unchanged source, and note those that fail."""
        if "all" in self.stages and "seconds" not in self.kept:
            started = time.monotonic()
            arguments = [*self.left_out(), *spread(workers), "--continue-on-collection-errors", "tests"]
            marks = MARKS["all"] if "slow" not in self.stages else "not gpu"
            status, failed, output = copy.tests(arguments, self.limit, marks)
            if status not in (0, 1):
                sys.exit(f"tests of the unchanged source ended with {status}:\n{output[-3000:]}")
            self.kept["seconds"] = round(time.monotonic() - started)
            self.leave_out(failed)

    def leave_out(self, tests: list[str]) -> None:
        with self.lock:
            self.kept["failed"] = sorted({*self.kept.get("failed", ()), *tests})
            self.keep()
        for name in tests:
            print(f"left out, fails on unchanged source: {name}", flush=True)

    def judge(self, mutant: Mutant, copies: queue.Queue[Copy]) -> None:
        """Run the stages for one mutant, unless its verdict is known."""
        note = self.kept["mutants"].setdefault(mutant.key, {"room": room(mutant.path), "passed": []})
        if "verdict" in note or STOPPED.is_set():
            return
        copy, source = copies.get(), (ROOT / mutant.path).read_bytes()
        try:
            copy.write(mutant.path, mutant.mutation.applied(source))
            for stage, tests in stages(mutant.path).items():
                if stage in self.stages and stage not in note["passed"]:
                    by = self.failing(copy, stage, tests, mutant.path)
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
        print(f"{note['verdict']:8} {note.get('stage', ''):6} {mutant.key}", flush=True)

    def failing(self, copy: Copy, stage: str, tests: list[str], path: str) -> str:
        """Return a test of the stage that fails, alone too, and not on unchanged source; empty if there is none."""
        arguments, marks = ["-x", *(spread(self.split) if stage in MARKS else [])], MARKS.get(stage, "not gpu")
        limit = STAGES.get(stage, self.limit)
        for _ in range(5):
            status, failed, output = copy.tests([*self.left_out(), *arguments, *tests], limit, marks)
            if status in (0, 5) or (status is None and stage in STAGES):
                return ""
            if status is None or not failed:
                return "the time limit" if status is None else (output.strip().splitlines() or ["?"])[-1]
            alone = copy.tests(failed, self.limit)[0]
            if alone == 0:  # it failed by chance
                arguments += [f"--deselect={name}" for name in failed]
                continue
            mutated = (copy.tree / path).read_bytes()
            copy.write(path, (ROOT / path).read_bytes())
            if "seconds" in self.kept or copy.tests(failed, self.limit)[0] == 0:
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
    arguments.add_argument("--stages", nargs="+", default=[*STAGES, "all"], help="of own, naming, folder, all and slow")
    arguments.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="mutants at a time")
    arguments.add_argument("--split", type=int, default=1, help="processes per mutant that run all tests")
    arguments.add_argument("--limit", type=float, default=1800, help="seconds for all tests of a mutant")
    arguments.add_argument("--folder", type=Path, help="folder for the workers' copies, which are removed at the end")
    arguments.add_argument("--out", type=Path, default=Path("mutants.json"), help="keeps the verdicts")
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
        run.unchanged(first, given.workers)
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
