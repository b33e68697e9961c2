"""Check this machine: the GPU, packages, compilers, Ray and the database. Imports no optional package."""

import os
import shutil
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from gemmtune.engine.records.errors import StoreError, ToolchainMissing
from gemmtune.engine.report.doctor.gpu import gpu_checks
from gemmtune.engine.report.doctor.report import Check, Level, advice, fault, fine
from gemmtune.engine.report.layout import count
from gemmtune.engine.store.database import Database
from gemmtune.engine.toolchain.installed import install_command
from gemmtune.engine.toolchain.ptxas import inductor_ptxas, ptxas_release, triton_ptxas

_PACKAGE = "gemmtune"
_FOR_DEVELOPERS = {"all", "dev"}
_ANSWER_SECONDS = 3.0


def examine(database: str, environment: Mapping[str, str]) -> list[Check]:
    """Check this machine, with variables such as CC, CXX and RAY_ADDRESS; change no setting and start nothing."""
    gpu = gpu_checks()
    has_gpu = gpu[0].level is Level.OK
    return [
        *gpu,
        *package_checks(metadata.requires(_PACKAGE) or [], has_gpu),
        bytecode_check(),
        *compiler_checks(environment),
        ray_check(environment.get("RAY_ADDRESS")),
        database_check(database),
    ]


def package_checks(requirements: Sequence[str], has_gpu: bool) -> list[Check]:
    """Check that each required package is installed, in a version that gemmtune knows; a GPU needs torch for CUDA."""
    wanted: dict[str, tuple[SpecifierSet, str]] = {}  # name: bounds, and the first extra that requires it
    for requirement in map(Requirement, requirements):
        extra = _extra(requirement)
        if extra is not None and extra not in _FOR_DEVELOPERS and requirement.name != _PACKAGE:
            wanted.setdefault(requirement.name, (requirement.specifier, extra))
    return [_package_check(name, bounds, extra, has_gpu) for name, (bounds, extra) in wanted.items()]


def _package_check(name: str, bounds: SpecifierSet, extra: str, has_gpu: bool) -> Check:
    remedy = install_command(extra)
    try:
        found = metadata.version(name)
    except metadata.PackageNotFoundError:
        missing = f"not installed ({bounds})"
        return advice(name, missing, f"{remedy}, for what needs it") if extra else fault(name, missing, remedy)
    if not bounds.contains(found, prereleases=True):
        return fault(name, f"{found} is not {bounds}", f"{remedy} --upgrade")
    if name == "torch" and has_gpu and Version(found).local == "cpu":
        return fault(name, f"{found} knows no CUDA, and there is a GPU", "install a CUDA build, https://pytorch.org")
    return fine(name, f"{found} ({bounds})")


def _extra(requirement: Requirement) -> str | None:
    """Return the extra that has the requirement: empty for gemmtune itself, None if it does not apply here."""
    extras = ["", *(metadata.metadata(_PACKAGE).get_all("Provides-Extra") or [])]
    marker = requirement.marker
    return next((extra for extra in extras if marker is None or marker.evaluate({"extra": extra})), None)


def compiler_checks(environment: Mapping[str, str]) -> list[Check]:
    """Check the C compiler for Triton's launchers, g++ for AOTInductor if there is one, and ptxas for kernels."""
    headers = Path(sysconfig.get_paths()["include"], "Python.h")
    compiler = environment.get("CC") or shutil.which("gcc") or shutil.which("clang")  # as triton/runtime/build.py
    if compiler is None or shutil.which(compiler) is None:
        lacking = f"{compiler or 'gcc and clang'} not found; torch.compile needs one to launch Triton kernels"
        c_compiler = advice("C compiler", lacking, "install gcc, or set CC")
    elif not headers.exists():
        c_compiler = advice("C compiler", f"{compiler}, but no {headers}", "install Python's headers (python3-dev)")
    else:
        c_compiler = fine("C compiler", f"{compiler}, with {headers}")
    compilers = [c_compiler, *_cxx_checks(environment)]
    own = triton_ptxas()
    if own is None:
        return compilers
    used = inductor_ptxas(environment) or own
    try:
        whose = "triton's own" if used == own else f"{used}, which Inductor has triton run"
        return [*compilers, fine("ptxas", f"{ptxas_release(used)}, {whose}")]
    except ToolchainMissing as error:
        return [*compilers, fault("ptxas", str(error), "pip install --force-reinstall triton torch")]


def _cxx_checks(environment: Mapping[str, str]) -> list[Check]:
    """Check that g++ finds a shared libstdc++; without it, packages of AOTInductor crash in std::regex when they load.

    Torch reads a device's name with std::regex. Seen with torch 2.11 and g++ 13.3; a link to libstdc++.so.6 on
    LIBRARY_PATH does not help.
    """
    compiler = shutil.which(environment.get("CXX") or "g++")
    if compiler is None:
        return []
    command = [compiler, "-print-file-name=libstdc++.so"]
    try:
        library = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        return [advice("C++ compiler", f"{compiler} does not run: {error}", "install g++, or set CXX, for AOTInductor")]
    if Path(library).is_absolute():
        return [fine("C++ compiler", f"{compiler}, with {library}")]
    lacking = f"{compiler}, but no libstdc++.so to link: packages of AOTInductor may end with a segmentation fault"
    return [advice("C++ compiler", lacking, "set CXX to a g++ that has one, or install libstdc++-NN-dev")]


def bytecode_check(packages: Sequence[str] = ("torch", "sympy", "triton")) -> Check:
    """Check that packages have bytecode, as pip installs them; uv and some images leave it out.

    Without bytecode, each new process compiles what it imports, for seconds of a core.
    """
    found = {name: spec for name in packages if (spec := find_spec(name)) is not None}  # does not import them
    source = {name: spec for name, spec in found.items() if spec.cached and not Path(spec.cached).exists()}
    if not source:
        return fine("bytecode", f"there for {', '.join(found) or 'all that is installed'}")
    folders = " ".join(str(Path(spec.origin).parent) for spec in source.values() if spec.origin)
    slow = f"none for {', '.join(source)}: every process that starts compiles them, for seconds"
    return advice("bytecode", slow, f"{sys.executable} -m compileall -q -j 0 {folders}")


def ray_check(address: str | None) -> Check:
    """Check that `--fleet ray` finds a cluster at `address`, the value of RAY_ADDRESS; start and join nothing."""
    if find_spec("ray") is None:
        here = "not installed: campaigns use the GPUs of this machine"
        return advice("Ray", here, f"{install_command('ray')} for --fleet ray")
    if not address or ":" not in address:
        return fine("Ray", "--fleet ray joins the cluster that runs here, or else starts one of this machine")
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_ANSWER_SECONDS).close()
    except (OSError, ValueError) as error:
        silent = f"RAY_ADDRESS={address} does not answer ({error})"
        return advice("Ray", silent, "`ray start --head` there, or unset RAY_ADDRESS")
    return fine("Ray", f"RAY_ADDRESS={address} answers")


def database_check(url: str) -> Check:
    """Check that the database can be read, or created if it is missing; create nothing."""
    path = Path(url)
    if "://" not in url and not path.exists():
        folder = next(parent for parent in path.absolute().parents if parent.exists())
        if not os.access(folder, os.W_OK | os.X_OK):
            return fault("database", f"{url} cannot be made: {folder} is not writable", "name another with --database")
        return fine("database", f"none at {url} yet; `gemmtune tune` makes it")
    try:
        with Database.open(url, read_only=True) as store:
            held = len(store)
    except StoreError as error:
        reason, _, way_out = str(error).partition("; ")
        return fault("database", reason, way_out or "name another with --database")
    return fine("database", f"{url} holds {count(held, 'measurement')}")
