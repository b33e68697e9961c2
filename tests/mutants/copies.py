"""Copies of the tree, each with a Python whose gemmtune is that copy, and runs of pytest in them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import time
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LEFT = shutil.ignore_patterns(".git", ".venv*", ".releases", ".*_cache", "__pycache__", "out", "build", "*.egg-info")
RECORDING = "import os; 'MUTANTS_REACH' in os.environ and __import__('mutants_recorder')"
"""A line of site-packages, which Python runs as it starts."""
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
        lines = [str(self.tree), *filter(None, packages), str(self.tree / "tests/mutants/recording"), RECORDING]
        (site / "copy.pth").write_text("\n".join(lines) + "\n")
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

    def tests(
        self, arguments: list[str], seconds: float, reach: Path | None = None
    ) -> tuple[int | None, list[str], str]:
        """Run pytest; return its status, the tests that failed, and its output. No status: it ran past the limit.

        What the tests reach is added to the file `reach`; see recording/.
        """
        if STOPPED.is_set():
            return None, [], ""
        temporary = self.folder / "x"
        shutil.rmtree(temporary, ignore_errors=True)
        (temporary / "home").mkdir(parents=True)
        environment = {n: v for n, v in os.environ.items() if n not in ("PYTHONPATH", "PYTHONHOME", "PYTEST_ADDOPTS")}
        environment |= {"TMPDIR": str(temporary), "HOME": str(temporary / "home"), "CUDA_VISIBLE_DEVICES": ""}
        environment |= {"OMP_NUM_THREADS": "1", "PATH": f"{self.python.parent}:{os.environ['PATH']}"}
        cache = ["-o", f"cache_dir={temporary}/cache", "--basetemp", f"{temporary}/b"]
        options = ["-q", "--tb=short", "-p", "no:benchmark", "-m", "not gpu", *cache]
        if reach:
            environment["MUTANTS_REACH"] = str(reach)
            options += ["-p", "mutants_plugin"]
        command = [self.python, "-m", "pytest", *options, *arguments]
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
