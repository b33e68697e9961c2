"""Write Inductor's kernel of one config as a Python program that needs torch and Triton alone. Imports torch."""

import ast
import re
import tempfile
from collections.abc import Callable, MutableMapping
from pathlib import Path

from gemmtune.engine.records.config import Config, values_text
from gemmtune.engine.records.epilogue.terms import Operand, Product, Term, evaluated, expanded
from gemmtune.engine.records.gemm.problem import Problem, gemm
from gemmtune.engine.records.gemm.terms import Bias, DType
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.space import BuildError
from gemmtune.spaces.gemm.kind import positive_of, spreads_of, tolerance_of
from gemmtune.spaces.inductor.render import Rendering, render
from gemmtune.spaces.inductor.target import environment, target

_DECORATOR = re.compile(r"@triton_heuristics\.\w+\(.*?\n\)\n@triton\.jit\n", re.DOTALL)
_LARGEST = {DType.E4M3: 448.0, DType.E5M2: 57344.0, DType.INT8: 127.0}


def rendered_script(task: Task, config: Config, folder: Path) -> str:
    """Return a program that makes operands, launches the config's kernel, and compares its outputs with float64.

    Raises:
        BuildError: Inductor renders nothing for the config.
    """
    with tempfile.TemporaryDirectory(dir=folder) as scratch, environment(scratch), target(task.device):
        return _script(task, config, render(gemm(task.problem), config))


def _script(task: Task, config: Config, rendering: Rendering) -> str:
    problem = gemm(task.problem)
    source = Path(rendering.kernel.module_path).read_text(encoding="utf-8").strip()
    if len(_DECORATOR.findall(source)) != 1:
        raise BuildError(f"Inductor's module of {rendering.kernel.name} is decorated otherwise than expected")
    (function,) = (node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef))
    names = [rendering.kernel.arguments[each.arg] for each in function.args.args]
    open_sizes = [each.arg for each in function.args.args if rendering.kernel.arguments[each.arg] == "m"]
    decorator = f"@triton.jit(do_not_specialize={open_sizes!r})\n" if open_sizes else "@triton.jit\n"
    passed = ", ".join(str(problem.m) if name == "m" else name for name in names)
    options = f"num_warps={config['num_warps']}, num_stages={config['num_stages']}"
    tensors, outputs = ", ".join(problem.argument_names), [n for n in problem.argument_names if n.startswith("out")]
    tolerances = {n: tolerance_of(problem, d) for n, d in zip(outputs, problem.stored_dtypes, strict=True)}
    read = ", ".join(name for name in problem.argument_names if name not in outputs)
    return f'''"""{problem.name} on {task.device.name}, {task.space}: {values_text(config)}.

Launches the kernel, and compares what it computes with float64. Needs torch, Triton and a GPU of {task.device.arch}.
With TRITON_INTERPRET=1, fp16, fp32 and int8 run on a CPU, without functions such as erf.
"""

import os

import torch
{_DECORATOR.sub(decorator, source)}


DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
TOLERANCES = {tolerances!r}


def normal(elements, dtype, spread=1.0, largest=None):
    values = torch.randn(elements, device=DEVICE) * spread
    if largest is not None:
        values = values.clamp(-largest, largest)
    return (values if dtype.is_floating_point else values.round()).to(dtype)


def operands():
    torch.manual_seed(0)
{_indented(_operands(problem))}
    return {tensors}


def launch({tensors}):
    {function.name}[{rendering.grid}]({passed}, {options})


def reference({read}):
{_indented(_reference(problem))}


def main():
    if DEVICE == "cuda" and not torch.cuda.is_available():
        raise SystemExit("no CUDA GPU: run this on a {task.device.name}, or with TRITON_INTERPRET=1")
    {tensors} = operands()
    launch({tensors})
    right = reference({read})
    for name, found, expected in zip(TOLERANCES, ({", ".join(outputs)},), right, strict=True):
        error = float((found.double() - expected).norm() / expected.norm())
        print(f"{{name}}: relative error {{error:.1e}}, at most {{TOLERANCES[name]:.0e}}")
        if not error <= TOLERANCES[name]:
            raise SystemExit("the result is wrong")


if __name__ == "__main__":
    main()
'''


def _indented(lines: list[str]) -> str:
    return "\n".join(f"    {line}" for line in lines)


def _operands(problem: Problem) -> list[str]:
    """Return a statement per tensor of a call."""
    batch = (problem.batch,) if problem.op.is_batched else ()
    spreads, positive = (
        spreads_of(problem),
        {each.name for each in positive_of(problem.epilogue) if isinstance(each, Operand)},
    )
    lines = []
    for name, sizes, dtype in (
        ("a", (*batch, problem.m, problem.k), problem.a_dtype),
        ("b", (*batch, problem.k, problem.n), problem.b_dtype),
    ):
        facts = f"spread={spreads[name]:g}" if spreads[name] != 1 else ""
        facts = ", ".join(filter(None, (facts, f"largest={_LARGEST[dtype]:g}" if dtype in _LARGEST else "")))
        strides = problem.strides_of(name, problem.m)
        made = f"normal({problem.reach(name)}, {_torch(dtype)}{facts and f', {facts}'})"
        lines.append(f"{name} = {made}.as_strided({sizes}, {tuple(strides)})")
    names = [name for name in problem.argument_names if name.startswith("out")]
    for name, dtype in zip(names, problem.stored_dtypes, strict=True):
        sizes, unset = (*batch, problem.m, problem.n), "-(2**31)" if dtype.is_integer else 'float("nan")'
        lines.append(f"{name} = torch.full({sizes}, {unset}, dtype={_torch(dtype)}, device=DEVICE)")
    if problem.bias is not Bias.NONE:
        lines.append(f"bias = normal({problem.bias_shape}, {_torch(problem.out_dtype)}, spread={problem.k**0.5:g})")
    further = (
        (each.name, _further(problem, each, spreads.get(each.name), positive)) for each in problem.epilogue.operands
    )
    return [*lines, *(f"{name} = {made}" for name, made in further)]


def _further(problem: Problem, operand: Operand, scale: float | None, positive: set[str]) -> str:
    """Return the expression of an operand of the epilogue."""
    shape = problem.shape_of(operand.shape, operand.block)
    shape = (*shape[:-2], shape[-1], shape[-2]) if operand.transposed else shape
    behind = ".mT" if operand.transposed else ""
    if operand.dtype == "bool":
        return f"(torch.randn({shape}, device=DEVICE) > 0){behind}"
    dtype = _torch(DType(operand.dtype or problem.out_dtype))
    if scale is not None:
        return f"((torch.rand({shape}, device=DEVICE) + 0.5) * {scale:g}).to({dtype}){behind}"
    return f"normal({shape}, {dtype}){'.abs()' if operand.name in positive else ''}{behind}"


def _reference(problem: Problem) -> list[str]:
    """Return the statements of the product and its epilogue in float64."""
    lines = ["product = a.double() @ b.double()"]
    if problem.bias is not Bias.NONE:
        added = f" + {problem.beta!r} * bias.double()" if problem.beta else ""
        lines.append(f"product = {problem.alpha!r} * product{added}")
    values: MutableMapping[Term, str] = {Product(): "product"}
    for operand in problem.epilogue.operands:
        rows = f".repeat_interleave({operand.block}, 0)[:{problem.m}]" if operand.block else ""
        lines.append(f"{operand.name} = {operand.name}{'' if operand.dtype == 'bool' else '.double()'}{rows}")
        values[operand] = operand.name

    def number(value: float) -> str:
        return f"torch.tensor({value!r}, dtype=torch.float64, device=DEVICE)"

    def operation(op: str) -> Callable[..., str]:
        def statement(*arguments: str) -> str:
            name = f"t{len(lines)}"
            lines.append(f"{name} = torch.{op}({', '.join(arguments)})")
            return name

        return statement

    found = [evaluated(expanded(output.term), values, number, operation) for output in problem.epilogue.outputs]
    return [*lines, f"return ({', '.join(found or ['product'])},)"]


def _torch(dtype: DType) -> str:
    return f"torch.{dtype.torch_name}"
