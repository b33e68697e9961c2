"""Launch the kernel of one adapter as its program does: host.py VERB FILE.py:CLASS ...; the last line is JSON.

interpret   compare the kernel with the reference under Triton's interpreter, on the CPU
own         let the kernel's own autotuner choose, per case
warm        compile a part of the autotuner's configs into Triton's cache, without a GPU
program     launch every case, eager and compiled, and count what is benchmarked: with a table, if one is given
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import triton
import triton.language as tl
from triton.runtime.autotuner import Autotuner
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

from gemmtune.engine.consumers.triton.contract import autotuner_of, layers, param_value
from gemmtune.spaces.triton.decorators import OPTIONS, values_of
from gemmtune.spaces.triton.definition import Definition, load_definition

PARTS = 4
"""Processes that share an autotuner's configs."""
_MOST_WARMED = 64
"""Configs of an autotuner above which none is compiled beforehand: it prunes most of them."""


class Source:
    """Tensors of normal values on a device."""

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)

    def normal(self, dtype: torch.dtype, shape: tuple[int, ...], name: str, scale: float = 1.0) -> torch.Tensor:
        generator = torch.Generator(self.device).manual_seed(len(name) + int(name.rsplit(maxsplit=1)[-1]))
        values = torch.randn(shape, device=self.device, generator=generator)
        return values.to(dtype) if dtype.is_floating_point else (values * scale).round().clamp(-127, 127).to(dtype)

    own = normal

    def empty(self, dtype: torch.dtype, shape: tuple[int, ...], name: str) -> torch.Tensor:
        return torch.full(shape, float("nan"), device=self.device).to(dtype)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("verb", choices=("interpret", "warm", "own", "program"))
    parser.add_argument("adapter", help="FILE.py:CLASS")
    parser.add_argument("--part", type=int, default=0, help=f"one of {PARTS} parts, for warm")
    parser.add_argument("--table", type=Path, help="folder of an exported table, for program")
    given = parser.parse_args()
    file, name = given.adapter.rsplit(":", 1)
    definition = load_definition(Path(file).resolve(), name)
    verbs: dict[str, Callable[[], Any]] = {
        "interpret": lambda: interpret(definition),
        "warm": lambda: warm(definition, given.part),
        "own": lambda: own_choices(definition),
        "program": lambda: program(definition, given.table),
    }
    print(json.dumps(verbs[given.verb]()), flush=True)


def case_text(sizes: dict[str, int]) -> str:
    return ",".join(f"{name}={value}" for name, value in sizes.items())


def interpret(definition: Definition) -> dict[str, float]:
    """Return the relative error of each output of the small case, run by Triton's interpreter."""
    sizes = definition._user.small
    arguments = definition.tensors(sizes, Source("cpu"), "small")
    expected = definition.reference(sizes, arguments)
    configs = [definition.default, *definition.seeds]
    config = min(configs, key=lambda each: sum(v for v in each.values() if isinstance(v, int)))
    given = definition.values(arguments, {n: v for n, v in config.items() if n in definition.argument_names})
    *_, kernel = layers(definition.kernel)
    dot = InterpreterBuilder.create_dot

    def widened(self: Any, a: TensorHandle, b: TensorHandle, *others: Any) -> TensorHandle:
        return dot(self, _widened(a), _widened(b), *others)

    with patch.object(InterpreterBuilder, "create_dot", widened):
        kernel[definition.grid(sizes, given)](**given)
    return errors(definition, arguments, expected)


def _widened(operand: TensorHandle) -> TensorHandle:
    """Return a bfloat16 operand as float32: the interpreter's product takes its bits for integers."""
    if operand.dtype.scalar != tl.bfloat16:
        return operand
    return TensorHandle((operand.data.astype("uint32") << 16).view("float32"), tl.float32)


def errors(definition: Definition, arguments: dict[str, Any], expected: tuple[torch.Tensor, ...]) -> dict[str, float]:
    """Return each output's relative error, and raise AssertionError where one is above the adapter's tolerance."""
    from gemmtune.spaces.triton.kind import _TOLERANCE

    found = {}
    for name, right in zip(definition.outputs, expected, strict=True):
        got = arguments[name]
        error = float((got.double() - right.double()).norm() / right.double().norm())
        kind = str(got.dtype).removeprefix("torch.")
        most = definition.tolerance(name, got.dtype, _TOLERANCE[kind])
        assert error <= most, f"{definition.name}: {name} is {error:.2e} off, more than {most}"
        found[name] = error
    return found


def warm(definition: Definition, part: int) -> dict[str, Any]:
    """Compile a part of an autotuner's configs into Triton's cache, and return how many fail."""
    from gemmtune.engine.records import catalogue
    from gemmtune.engine.toolchain import absent_gpu

    fails, tuned = 0, autotuner_of(definition.kernel) is not None
    with absent_gpu.target(catalogue.device("H100")):
        triton.runtime.driver.active.get_current_stream = lambda _: 0
        for sizes, _ in definition.cases.values() if tuned and len(definition.seeds) <= _MOST_WARMED else ():
            for config in definition.seeds_of(sizes)[part::PARTS]:
                try:
                    arguments = definition.values(definition.tensors(sizes), config)
                    definition.jit.run(grid=(1, 1, 1), warmup=True, **arguments)
                except Exception:  # a config that does not build is the autotuner's affair
                    fails += 1
    return {"fails_to_build": fails}


def own_choices(definition: Definition) -> dict[str, Any]:
    """Return per case the config that the program runs without a table: its autotuner's choice, else its default."""
    tuner = autotuner_of(definition.kernel)
    if tuner is None:
        return {case_text(sizes): {"config": definition.default} for sizes, _ in definition.cases.values()}
    found = {}
    for sizes, _ in definition.cases.values():
        started, arguments = time.monotonic(), definition.tensors(sizes, Source("cuda"), "own")
        with counted() as counts:
            positional, named = call_of(definition, arguments)
            launcher(definition, sizes)(*positional, **named)
        torch.cuda.synchronize()
        (config,) = values_of([tuner.best_config])
        config = {name: config.get(name, "None" if name == "maxnreg" else None) for name in definition.params}
        line = {"config": config, "benchmarked": counts["eager"], "seconds": round(time.monotonic() - started, 1)}
        found[case_text(sizes)] = line
    return found


def launcher(definition: Definition, sizes: dict[str, int], kernel: Any = None) -> Callable[..., None]:
    """Return the function that a program has: it launches the kernel with tensors and numbers by name."""
    kernel = definition.kernel if kernel is None else kernel
    text = re.sub(r"\bcdiv\b", "triton.cdiv", definition._user.blocks)
    known = {**{name.upper(): value for name, value in sizes.items()}, **sizes}
    text = re.sub(r"\b[A-Za-z_]\w*\b(?!\s*\()", lambda word: _word(word[0], known, definition.params), text)
    grid = eval(f"lambda meta: {text}", {"triton": triton})
    if not isinstance(grid(dict.fromkeys(definition.params, 16)), tuple):
        grid = eval(f"lambda meta: ({text},)", {"triton": triton})

    def launch(*positional: Any, **named: Any) -> None:
        kernel[grid](*positional, **named)

    return launch


def default_of(definition: Definition) -> triton.Config:
    """Return the class's default, which Inductor launches where no table holds, as below heuristics in torch 2.11."""
    values = {name: param_value(value) for name, value in definition.default.items()}
    options = {name: values.pop(name) for name in OPTIONS if name in values}
    return triton.Config(values, **options)


def call_of(definition: Definition, arguments: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return what a program passes by position, up to the first constant or gap, and by name."""
    constant = {param.name for param in definition.jit.params if param.is_constexpr}
    names = takewhile(lambda name: name in arguments and name not in constant, definition.argument_names)
    positional = [arguments[name] for name in names]
    return positional, dict(list(arguments.items())[len(positional) :])


def _word(name: str, known: dict[str, int], params: Mapping[str, object]) -> str:
    if name in params:
        return f"meta['{name}']"
    return str(known.get(name, name))


@contextmanager
def counted() -> Iterator[dict[str, int]]:
    """Count configs that Triton's autotuner and Inductor's benchmark; by Triton's listener where it has one."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    counts = {"eager": 0, "compiled": 0}

    def counting(name: str, function: Any) -> Any:
        def bench(*given: Any, **named: Any) -> Any:
            counts[name] += 1
            return function(*given, **named)

        return bench

    with (
        patch.object(Autotuner, "_bench", counting("eager", Autotuner._bench)),
        patch.object(CachingAutotuner, "bench", counting("compiled", CachingAutotuner.bench)),
    ):
        yield counts


def loaded(folder: Path) -> Any:
    """Return the loader of an exported table."""
    spec = importlib.util.spec_from_file_location("gemmtune_triton", folder / "gemmtune_triton.py")
    loader = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loader)
    return loader


def program(definition: Definition, folder: Path | None) -> dict[str, Any]:
    """Return per case how many configs were benchmarked and the error, eager and in torch.compile."""
    kernel = definition.kernel
    if autotuner_of(kernel) is None:
        key = list(definition.scalars(next(iter(definition.cases.values()))[0]))
        kernel = triton.autotune([default_of(definition)], key=key)(kernel)
    loader = loaded(folder) if folder else None
    found: dict[str, Any] = {"rows": loader.load(kernel) if loader else 0}
    for sizes, _ in definition.cases.values():
        line = found[case_text(sizes)] = {}
        for mode in ("eager", "compiled"):
            arguments = definition.tensors(sizes, Source("cuda"), "program")
            expected = definition.reference(sizes, arguments)
            for name in definition.zeroed:
                arguments[name].zero_()
            launch = launcher(definition, sizes, kernel)
            if mode == "compiled":
                torch._dynamo.reset()
                launch = torch.compile(launch, fullgraph=True)
            try:
                positional, named = call_of(definition, arguments)
                with counted() as counts:
                    launch(*positional, **named)
                torch.cuda.synchronize()
                line[mode] = {"benchmarked": sum(counts.values()), **errors(definition, arguments, expected)}
            except Exception as error:  # what torch.compile does not take is a result, too
                line[mode] = {"fails": f"{type(error).__name__}: {error}".strip()[:1000]}
    made_with = [torch.cuda.get_device_name(), f"torch {torch.__version__}", f"triton {triton.__version__}"]
    return {**found, "missed": loader.report() if loader else {}, "made_with": made_with}


if __name__ == "__main__":
    sys.exit(main())
