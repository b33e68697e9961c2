"""Write a program that launches a user's kernel for one case and checks it. Imports torch."""

from collections.abc import Mapping

from gemmtune.engine.records.config import Value, values_text
from gemmtune.engine.records.task import Task
from gemmtune.spaces.common.triton_config import triton_config
from gemmtune.spaces.triton.definition import Definition
from gemmtune.spaces.triton.kind import default_tolerance


def script_of(task: Task, values: Mapping[str, Value], definition: Definition) -> str:
    """Return a program that launches the class's kernel for a case, and compares its outputs with the reference.

    Args:
        task: task of the case, on a device that the program needs.
        values: what a config stands for: parameters of the kernel and options of the compiler.
        definition: the user's class; the program imports its file.
    """
    sizes = task.problem.sizes
    made = definition.tensors(sizes)
    tolerances = {
        name: definition.tolerance(name, made[name].dtype, default_tolerance(made[name].dtype))
        for name in definition.outputs
    }
    return f'''"""{task.problem.name} on {task.device.name}: {values_text(values)}.

Launches the kernel of {definition.name}, and compares what it computes with the class's reference. Needs torch, Triton,
and a GPU of {task.device.arch}. With TRITON_INTERPRET=1 it runs on a CPU, where Triton's interpreter knows the kernel.
"""

import importlib
import os
import sys

import torch
import triton
import triton.language as tl

sys.path.insert(0, {str(definition.file.resolve().parent)!r})
CLASS = importlib.import_module({definition.file.stem!r}).{definition.name}
CASE = {dict(sizes)!r}
CONFIG = {triton_config(values)}
TOLERANCES = {tolerances!r}
DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"


class Make:
    device = torch.device(DEVICE)

    def normal(self, shape, dtype=torch.bfloat16, scale=1.0):
        values = torch.randn(shape, device=DEVICE) * scale
        return (values if dtype.is_floating_point else (values * 32).round()).to(dtype)

    def integers(self, low, high, shape, dtype=torch.int32):
        return torch.randint(low, high, shape, dtype=dtype, device=DEVICE)

    def zeros(self, shape, dtype=torch.bfloat16):
        return torch.zeros(shape, dtype=dtype, device=DEVICE)

    def empty(self, shape, dtype=torch.bfloat16):
        return torch.empty(shape, dtype=dtype, device=DEVICE)


def launch(user, arguments):
    grid = user.grid(CASE, {{**arguments, **CONFIG.all_kwargs()}})
    grid = tuple(grid) if isinstance(grid, (tuple, list)) else (grid,)
    tuner = user.kernel
    while not isinstance(tuner, triton.runtime.Autotuner) and hasattr(tuner, "fn"):
        tuner = tuner.fn
    if isinstance(tuner, triton.runtime.Autotuner):  # with one config it benchmarks nothing
        CONFIG.pre_hook = next((each.pre_hook for each in tuner.configs if each.kwargs == CONFIG.kwargs), None)
        tuner.configs = [CONFIG]
        user.kernel[grid](**arguments)
    else:
        user.kernel[grid](**arguments, **CONFIG.all_kwargs())


def main():
    if DEVICE == "cuda" and not torch.cuda.is_available():
        raise SystemExit("no CUDA GPU: run this on a {task.device.name}")
    torch.manual_seed(0)
    user = CLASS()
    arguments = user.arguments(CASE, Make())
    right = user.reference(CASE, arguments)
    right = right if isinstance(right, dict) else {{{definition.outputs[0]!r}: right}}
    for name in {tuple(definition.zeroed)!r}:  # as the autotuner's reset_to_zero says
        arguments[name].zero_()
    launch(user, arguments)
    for name, most in TOLERANCES.items():
        expected = right[name].double()
        error = float((arguments[name].double() - expected).norm() / expected.norm().clamp(min=1e-30))
        print(f"{{name}}: relative error {{error:.1e}}, at most {{most:.0e}}")
        if not error <= most:
            raise SystemExit("the result is wrong")


if __name__ == "__main__":
    main()
'''
