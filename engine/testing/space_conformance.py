"""Conformance checks for spaces, which need only the space's class; `check_build` needs what the space builds with."""

import hashlib
import importlib
import importlib.util
import math
import os
import pickle
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path

import numpy as np

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.config import Config, Param, Value, params_fault
from gemmtune.engine.records.errors import ToolchainMissing
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.search import Prior
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.space import BuildError, Space
from gemmtune.engine.search.enumeration import permission
from gemmtune.engine.testing._contract import require, require_lightness, run_checks

_MOST_POINTS = 20_000  # listed per task
_MOST_JUDGED = 2_000  # of them, drawn at random, whose verdict is read
_MOST_COMPARED = 300  # of the first 2,000, drawn at random, that are compared between instances and processes
_MOST_RULES = 40  # of rejection per space
_MOST_BUILDS = 4  # until a binary must repeat
_MAX_REGISTERS_PER_THREAD = 255  # registers of 32 bits


@cache
def example_tasks() -> tuple[Task, ...]:
    """Return tasks with problems of every kind and GPUs of every size; a space may reject most of them."""
    known = (
        ("2048x4096x4096:bf16:nt", "H200"),
        ("16x4096x4096:bf16:nt", "H200"),
        ("512x1280x3421:bf16:nn", "B200"),
        ("1000x1000x1000:fp16:tt", "A100-80GB"),
        ("512x512x512:fp32:tn", "RTX-4090"),
        ("512x512x512:tf32:nt", "H200"),
        ("1x1x1:bf16:nt", "H200"),
        ("70000x40000x1024:bf16:nt", "H200"),
        ("512x512x512:bf16:nt:out_dtype=fp32", "H200"),
        ("512x512x512:bf16:nt:addmm", "H200"),
        ("512x512x512:bf16:nt:epilogue=relu", "H200"),
        ("8x512x512x512:bf16:nt:bmm", "H200"),
        ("512x512x512:bf16:nt:dynamic_m=true", "H200"),
        ("512x512x512:bf16:nt:addmm:bias=matrix:dynamic_m=true", "H200"),
        ("32x32x65536:bf16:nn", "H200"),
    )
    return tuple(Task(Problem.parse(problem), catalogue.device(sku), "example") for problem, sku in known)


def check_space(space: type[Space]) -> None:
    """Check a space's params, points, verdicts, seeds, prior and toolchain on its `examples`, without building.

    Example:
        >>> from gemmtune.spaces.aten import AtenSpace
        >>> check_space(AtenSpace)

    Raises:
        ContractError: the space broke its contract; the message says how.
    """
    run_checks(CHECKS, space, Space)


def spans_its_params(space: type[Space]) -> None:
    """Check that names and values are unique, and values finite, ascending where ordered, at least one each."""
    for task in _tasks(space):
        params = space().params(task)
        typed = isinstance(params, tuple) and all(isinstance(param, Param) for param in params)
        require(typed, space, f"has the params {params!r}, not a tuple of Param")
        require(not (fault := params_fault(params)), space, f"has wrong params: {fault}")


def has_points_of_its_params(space: type[Space]) -> None:
    """Check that points exist, have a listed value for every param, and are unique."""
    for task in _tasks(space):
        listed = _listed(space, task)
        points = _points(space, task)
        require(bool(points), space, f"has no point for {task.problem.name}")
        require(len(set(points)) == len(points), space, f"has a point twice for {task.problem.name}")
        foreign = next((point for point in points if not listed(point)), None)
        require(foreign is None, space, f"has the point {foreign}, which is not of its params")


def explains_every_rejection(space: type[Space]) -> None:
    """Check that `check` accepts some point, and gives each rejection a rule and a one-line reason."""
    rules = set()
    for task in _tasks(space):
        for point in _judged(space, task):
            verdict = space().check(task, point)
            require(not (broken := _wrong_verdict(point, verdict)), space, broken)
            rules.add(verdict.rule)
    require(len(rules) <= _MOST_RULES, space, f"has {len(rules)} rules > {_MOST_RULES}: put values into the reason")
    with suppress(ToolchainMissing):  # a space may need its toolchain to know what it accepts
        space().toolchain()
        require("" in rules, space, "rejects every point of every example")  # an accepted point has no rule


def _wrong_verdict(point: Config, verdict: object) -> str:
    """Return the fault of a verdict on a point, or an empty string."""
    if not isinstance(verdict, Verdict):
        return f"judged {point} as {verdict!r}, not with a Verdict"
    if not verdict and not (verdict.rule and verdict.reason.strip()):
        return f"rejected {point} without a rule or a reason"
    if verdict and verdict.rule:
        return f"accepted {point} by the rule {verdict.rule!r}"
    return f"gave more than one line for {point}" if "\n" in verdict.reason + verdict.rule else ""


def has_feasible_seeds(space: type[Space]) -> None:
    """Check that seeds are points that pass `check`, each once."""
    for task in _tasks(space):
        listed = _listed(space, task)
        seeds = space().seeds(task)
        require(isinstance(seeds, tuple), space, f"has the seeds {seeds!r}, not a tuple")
        require(len(set(seeds)) == len(seeds), space, f"has a seed twice for {task.problem.name}")
        for seed in seeds:
            require(listed(seed), space, f"has the seed {seed}, which is not of its params")
            verdict = space().check(task, seed)
            require(bool(verdict), space, f"rejects its seed {seed} for {task.problem.name}: {verdict.reason}")


def estimates_feasible_configs(space: type[Space]) -> None:
    """Check that a prior has its model and times above 0 of feasible configs, or a reason for having none."""
    for task in _tasks(space):
        listed = _listed(space, task)
        prior = space().prior(task)
        require(isinstance(prior, Prior), space, f"has the prior {prior!r}, not a Prior")
        complete = bool(prior.model) and not prior.reason if prior.times_ns else bool(prior.reason.strip())
        require(complete, space, f"has {len(prior.times_ns)} estimates by {prior.model!r}, reason {prior.reason!r}")
        require("\n" not in prior.model + prior.reason, space, "gave more than one line for its prior")
        for config, time_ns in prior.times_ns.items():
            require(0 < time_ns < math.inf, space, f"estimates {config} at {time_ns} ns")
            feasible = listed(config) and bool(space().check(task, config))
            require(feasible, space, f"estimates {config}, which is not feasible for {task.problem.name}")


def gives_equal_names_of_features(space: type[Space]) -> None:
    """Check that features are finite numbers under equal names everywhere, and that `features_of` gives the same."""
    names: tuple[str, ...] | None = None
    for task in _tasks(space):
        configs = _drawn([point for point in _judged(space, task) if space().check(task, point)], _MOST_COMPARED)
        if not configs:
            continue
        rows = [dict(space().features(task, config)) for config in configs]
        for config, row in zip(configs, rows, strict=True):
            names = tuple(sorted(row)) if names is None else names
            same = tuple(sorted(row)) == names
            require(same, space, f"gives {config} the features {sorted(row)}, and other configs {sorted(names)}")
            odd = {name: value for name, value in row.items() if not math.isfinite(value)}
            require(not odd, space, f"gives {config} the features {odd}")
        together = space().features_of(task, configs)
        apart = {name: [row[name] for row in rows] for name in rows[0]}
        shapes = {name: np.shape(values) for name, values in together.items()}
        equal = shapes == dict.fromkeys(apart, (len(rows),)) and all(np.allclose(together[n], apart[n]) for n in apart)
        require(equal, space, f"gives other features together than apart for {task.problem.name}")


def gives_each_config_its_key(space: type[Space]) -> None:
    """Check that each config of a task has an artifact key of its own."""
    for task in _tasks(space):
        points = _judged(space, task)
        keys = {space().artifact_key(task, point) for point in points}
        require(all(keys), space, "gives an empty artifact key")
        require(len(keys) == len(points), space, f"gives two configs of {task.problem.name} one artifact key")


def is_stateless(space: type[Space]) -> None:
    """Check that one instance, another, and a pickled copy describe tasks alike, and that none keeps state."""
    one = space()
    unused = pickle.dumps(one)
    copy: Space = pickle.loads(unused)  # noqa: S301 (our own bytes)
    require(isinstance(copy, space), space, f"pickles into {copy!r}")
    tasks = _tasks(space)[::2]
    first = [_digest(one, task) for task in tasks]
    again = [_digest(one, task) for task in reversed(tasks)][::-1]
    require(first == again, space, "describes a task differently the second time")
    new = [_digest(space(), task) for task in tasks[::2]]
    require(first[::2] == new, space, "describes a task differently per instance")
    copied = [_digest(copy, task) for task in tasks[1::2] or tasks]
    require((first[1::2] or first) == copied, space, "describes a task differently once pickled")
    require(pickle.dumps(one) == unused, space, "pickles other bytes after use: an instance must keep no state")


def names_its_toolchain(space: type[Space]) -> None:
    """Check that the toolchain has versions and reads back from its text, or that its absence names the install."""
    try:
        toolchain = space().toolchain()
    except ToolchainMissing as missing:
        require("pip install" in str(missing), space, f"does not say what to install: {missing}")
        return
    text, versions = toolchain.text, [version for _, version in toolchain.versions]
    require(Toolchain.parse(text) == toolchain, space, f"has the toolchain {text!r}, which does not read back")
    require(bool(versions) and all(versions), space, "has a toolchain without versions")


def preloads_what_exists(space: type[Space]) -> None:
    """Check that every preloaded module can be found."""
    for name in space.preload:
        require(importlib.util.find_spec(name) is not None, space, f"preloads {name!r}, which does not exist")


def describes_itself_lightly(space: type[Space]) -> None:
    """Check in a fresh process that describing loads no heavy package, leaves no file, and gives equal answers."""
    require_lightness(_digest_of_all, space)


CHECKS: tuple[Callable[[type[Space]], None], ...] = (
    spans_its_params,
    has_points_of_its_params,
    explains_every_rejection,
    has_feasible_seeds,
    estimates_feasible_configs,
    gives_equal_names_of_features,
    gives_each_config_its_key,
    is_stateless,
    names_its_toolchain,
    preloads_what_exists,
    describes_itself_lightly,
)
"""Checks that `check_space` runs, in order."""


def check_build(space: type[Space], task: Task, config: Config, folder: Path) -> Artifact:
    """Build a feasible config until a binary repeats, and an impossible config once, in new folders of `folder`.

    A few builds may differ, since ptxas 13 makes two binaries of some PTX. A binary that depends on a path, a clock or
    a hash seed never repeats.

    Returns:
        The artifact that repeated.

    Raises:
        ContractError: the space broke its contract; the message says how.
    """
    for name in space.preload:
        importlib.import_module(name)  # like a builder process; torch sets variables while it is imported
    before = dict(os.environ), Path.cwd()
    built: dict[str, Artifact] = {}
    for number in range(1, _MOST_BUILDS + 1):
        build_folder = Path(tempfile.mkdtemp(dir=folder, prefix="b" * number))
        artifact = space().build(task, config, build_folder)
        _check_artifact(space, task, config, artifact, build_folder)
        if artifact.digest in built:
            break
        built[artifact.digest] = artifact
    else:
        require(False, space, f"built {config} {_MOST_BUILDS} times into {_MOST_BUILDS} binaries")
    again = replace(artifact, path="", build_seconds=0.0)
    first = replace(built[artifact.digest], path="", build_seconds=0.0)
    require(first == again, space, f"built one binary twice and describes it as {first} and as {again}")
    _check_refusal(space, task, config, Path(tempfile.mkdtemp(dir=folder)))
    require(before == (dict(os.environ), Path.cwd()), space, "left another environment or working directory")
    return artifact


def _check_artifact(space: type[Space], task: Task, config: Config, artifact: Artifact, folder: Path) -> None:
    require(artifact.key == space().artifact_key(task, config), space, f"built an artifact of key {artifact.key!r}")
    require(artifact.space == task.space, space, f"built an artifact of the space {artifact.space!r}")
    require(artifact.toolchain == space().toolchain(), space, f"built with {artifact.toolchain.text}")
    require(0 <= artifact.build_seconds < math.inf, space, f"built in {artifact.build_seconds} s")
    require(pickle.loads(pickle.dumps(artifact)) == artifact, space, "built what does not pickle")  # noqa: S301 (ours)
    names = [name for name, _ in artifact.launch]
    require(len(set(names)) == len(names), space, f"names a launch value twice: {', '.join(names)}")
    lacking = [name for name in space.launch_params if dict(artifact.launch).get(name) != config.integer(name)]
    require(not lacking, space, f"leaves launch_params out of a launch: {', '.join(lacking)}")
    left = sorted(str(path) for path in folder.iterdir())
    require(left == [artifact.path] * bool(artifact.path), space, f"left {left} for the binary {artifact.path!r}")
    if artifact.path:
        digest = hashlib.sha256(Path(artifact.path).read_bytes()).hexdigest()
        require(artifact.digest == digest, space, f"gave the digest {artifact.digest} to a binary of {digest}")
    require(len(artifact.digest) == 64, space, f"gave the digest {artifact.digest!r}, which is no SHA-256")
    used, device = artifact.resources, task.device
    if used is not None:
        plausible = (
            0 < used.registers <= _MAX_REGISTERS_PER_THREAD
            and 0 < used.threads <= device.max_threads_per_block
            and used.threads * used.registers <= device.registers_per_sm
            and 0 <= used.shared_bytes <= device.shared_memory_per_block_bytes
            and used.spill_bytes >= 0
        )
        require(plausible, space, f"built a kernel that occupies {used}")


def _check_refusal(space: type[Space], task: Task, config: Config, folder: Path) -> None:
    """Check that building impossible values raises BuildError, no other exception, and leaves no file."""
    impossible = Config({name: _impossible(value) for name, value in config.items()})
    if not impossible:
        return
    try:
        space().build(task, impossible, folder)
    except BuildError as refusal:
        require(bool(str(refusal).strip()), space, f"refused {impossible} without a reason")
    except Exception as error:
        require(False, space, f"building {impossible} raised {error!r}, not BuildError")
    else:
        require(False, space, f"built {impossible}")
    require(not any(folder.iterdir()), space, f"left files of {impossible}, which it refused")


def _impossible(value: Value) -> Value:
    """Return a value of equal type that no hardware supports."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return 2 * abs(value) + 1_000_001
    return f"no {value}" if isinstance(value, str) else -1.5


def _tasks(space: type[Space]) -> tuple[Task, ...]:
    """Return the tasks that the space names as examples; GEMMs on GPUs of every size if it names none."""
    named = ((text, registry.workload(text.partition(":")[0]), sku) for text, sku in space.examples)
    return (
        tuple(Task(kind.parse(text), catalogue.device(sku), "example") for text, kind, sku in named) or example_tasks()
    )


def _listed(space: type[Space], task: Task) -> Callable[[Config], bool]:
    """Return whether a config has listed values alone, and the first one of each param that does not count."""
    return permission(space().params(task), lambda config: True)


def _points(space: type[Space], task: Task) -> list[Config]:
    return list(islice(space().points(task), _MOST_POINTS))


@lru_cache(32)  # the tasks of one space
def _judged(space: type[Space], task: Task) -> list[Config]:
    return _drawn(_points(space, task), _MOST_JUDGED)


def _drawn(points: list[Config], most: int) -> list[Config]:
    """Return at most so many of the points, always the same ones."""
    return points if len(points) <= most else random.Random(0).sample(points, most)  # noqa: S311 (a sample)


def _digest(space: Space, task: Task) -> str:
    """Return a digest of the space's answers for a task."""
    return hashlib.sha256("\0".join(_answers(space, task)).encode()).hexdigest()


def _answers(space: Space, task: Task) -> Iterator[str]:
    yield repr(space.params(task))
    yield repr(space.seeds(task))
    yield repr(space.prior(task))
    for point in _drawn(list(islice(space.points(task), _MOST_JUDGED)), _MOST_COMPARED):
        verdict = space.check(task, point)
        yield f"{point.json} {space.artifact_key(task, point)} {verdict} {verdict and space.summation(task, point)}"


def _digest_of_all(space: type[Space]) -> str:
    with suppress(ToolchainMissing):
        space().toolchain()
    return hashlib.sha256("".join(_digest(space(), task) for task in _tasks(space)[::2]).encode()).hexdigest()
