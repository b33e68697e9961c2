"""Run engines' kernels in Triton's interpreter on a CPU; the argument is a JSON list of workloads with configs."""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import triton.language as tl

from gemmtune.engine.measure.operands.operands import make_operands
from gemmtune.engine.measure.operands.reference import ReferenceResult, poison
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.kinds import parse_workload
from gemmtune.spaces.triton_source.launches import Pointer, Workspace


def value_of(argument, operands, memory):
    if isinstance(argument, Pointer):
        found = operands.arguments
        for key in argument.path:
            found = found[key]
        if found.dtype is torch.bfloat16:  # whose bits the interpreter multiplies
            return memory.setdefault(argument.path, found.float())
        return found
    if isinstance(argument, Workspace):
        return memory.setdefault(argument.number, torch.zeros(argument.nbytes // 4, dtype=torch.float32))
    return argument


def checked(text, configs):
    work = parse_workload(text)
    name = work.kind
    space: Any = registry.space(name)
    file = Path(tempfile.mkdtemp()) / "kernels.py"
    file.write_text(space.source()[0])
    spec = importlib.util.spec_from_file_location("kernels", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    operands = make_operands(work, torch.device("cpu"))
    for config in map(Config, configs):
        memory = {}
        for output in operands.outputs:
            poison(output)
        for launch in space.launches(Task(work, catalogue.device("H200"), name), config):
            arguments = {key: value_of(value, operands, memory) for key, value in launch.arguments.items()}
            constants = {
                key: getattr(tl, value[3:].replace("bfloat16", "float32")) if isinstance(value, str) else value
                for key, value in launch.constants.items()
            }
            if "USE_GDC" in constants:
                constants["USE_GDC"] = False  # PTX, which the interpreter does not run
            getattr(module, launch.function)[launch.grid](**arguments, **constants)
        for output, path in zip(operands.outputs, ((2,), (7,)), strict=False):  # their places among the arguments
            if path in memory:
                output.copy_(memory[path])
        check = ReferenceResult(work, operands).check(*operands.outputs)
        sys.stdout.write(f"{text} {config.json}: {check.reason or 'right'}\n")


if __name__ == "__main__":
    for each in json.loads(sys.argv[1]):
        checked(*each)
