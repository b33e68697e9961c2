"""Find the autotuned kernels of a checkout, and read each into its forms from its source alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_PLACES = re.compile(r"(^|/)(tests?|benchmarks?|examples|docs|op_tests|op_benchmarks)/")
_TUNER = re.compile(r"(^|\.)(\w*autotune|libtuner)$")
_JIT = re.compile(r"(^|\.)jit$")
_KNOWN = {"configs", "key", "prune_configs_by", "reset_to_zero", "restore_value", "pre_hook", "post_hook", "warmup"} | {
    *("rep", "use_cuda_graph", "do_bench", "cache_results", "strategy", "policy", None)
}
_OPTIONS = ("num_ctas", "maxnreg", "ir_override")
_DESCRIPTOR = {"load", "store", "gather", "scatter", "atomic_add"}


@dataclass
class Kernel:
    """Autotuned kernel and its forms."""

    repository: str
    file: str
    line: int
    name: str
    forms: set[str] = field(default_factory=set)

    @property
    def path(self) -> str:
        return f"{self.repository}/{self.file}:{self.name}"


def kernels(folder: Path) -> Iterator[Kernel]:
    """Yield the autotuned kernels of a checkout in the order of their files; tests and benchmarks are left out."""
    for path in sorted(folder.rglob("*.py")):
        file = path.relative_to(folder).as_posix()
        if _PLACES.search(file) or not re.search("autotune|libtuner", text := path.read_text(errors="replace")):
            continue
        module = Module(ast.parse(text))
        for function, decorators in module.autotuned():
            found = Kernel(folder.name, file, function.lineno, function.name)
            found.forms |= {*_of_decorators(module, function, decorators), *_of_body(module, function), *module.lost}
            yield found


class Module:
    """Source of a file: its functions and what its names are given."""

    def __init__(self, tree: ast.Module) -> None:
        self.functions = {each.name: each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)}
        self.given = {
            target.id: each.value
            for each in tree.body
            if isinstance(each, ast.Assign)
            for target in each.targets
            if isinstance(target, ast.Name)
        }
        self.imported = {
            (name.asname or name.name).split(".")[0]: getattr(each, "module", None) or name.name
            for each in ast.walk(tree)
            if isinstance(each, ast.Import | ast.ImportFrom)
            for name in each.names
        }
        self.tree = tree
        self.lost = {
            f"import of {name}, which Triton has not"
            for each in tree.body
            if isinstance(each, ast.Import | ast.ImportFrom)
            for name in ([each.module] if isinstance(each, ast.ImportFrom) else [one.name for one in each.names])
            if name and name.startswith("triton.") and not _importable(name)
        }

    def autotuned(self) -> Iterator[tuple[ast.FunctionDef, list[ast.expr]]]:
        """Yield kernels with their decorators, the outermost first; also those that a call wraps."""
        for each in ast.walk(self.tree):
            if isinstance(each, ast.FunctionDef):
                names = [_name(decorator) for decorator in each.decorator_list]
                if any(map(_TUNER.search, names)) and any(map(_JIT.search, names)) and "tilelang" not in self.imported:
                    yield each, each.decorator_list
            if isinstance(each, ast.Call) and isinstance(each.func, ast.Call) and _TUNER.search(_name(each.func)):
                wrapped = self.functions.get(ast.unparse(each.args[0])) if each.args else None
                if wrapped is not None and any(map(_JIT.search, map(_name, wrapped.decorator_list))):
                    yield wrapped, [each.func, *wrapped.decorator_list]

    def text(self, node: ast.AST, depth: int = 3) -> str:
        """Return the source of an expression with that of the module's names in it."""
        found = [ast.unparse(node)]
        for each in ast.walk(node) if depth else ():
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load):
                below = self.given.get(each.id) or self.functions.get(each.id)
                found += [self.text(below, depth - 1)] if below is not None and below is not node else []
        return "\n".join(found)


def _of_decorators(module: Module, function: ast.FunctionDef, decorators: list[ast.expr]) -> Iterator[str]:
    names = [_name(each).rpartition(".")[2] for each in decorators]
    at = next(number for number, each in enumerate(decorators) if _TUNER.search(_name(each)))
    tuner = decorators[at]
    assert isinstance(tuner, ast.Call)
    given = {each.arg: each.value for each in tuner.keywords} | dict(zip(("configs", "key"), tuner.args, strict=False))
    yield f"under {names[at]}"
    if decorators is not function.decorator_list:
        yield "wrapped by a call"
    for where, part in (("above", names[:at]), ("below", names[at + 1 : -1])):
        yield from (f"{each} {where} the autotuner" for each in set(part))
    if names.count("heuristics") > 1:
        yield "several heuristics"
    if ast.unparse(decorators[-1]).startswith("gluon"):
        yield "gluon"
    if unknown := given.keys() - _KNOWN:
        yield f"argument {min(map(str, unknown))} of the autotuner, which Triton has not"
    configs = given.get("configs")
    if configs is not None:
        yield from _of_configs(module, configs, function)
    yield from _of_key(module, given.get("key"), function, decorators)
    for name in ("reset_to_zero", "restore_value", "pre_hook", "post_hook", "use_cuda_graph", "do_bench", "strategy"):
        if name in given and ast.unparse(given[name]) not in ("None", "False", "[]"):
            yield {"pre_hook": "pre_hook of the autotuner", "strategy": "key by a strategy"}.get(name, name)
    if "prune_configs_by" in given:
        text = module.text(given["prune_configs_by"])
        yield from (f"prune by {each}" for each in ("early_config_prune", "perf_model") if each in text)
    for each in ast.walk(decorators[-1]):
        if isinstance(each, ast.keyword):
            yield f"jit({each.arg})"
    spare = function.args.defaults
    yield from ["default of an argument"] if spare else []
    if function.args.vararg:
        yield "variable number of arguments"
    if any(ast.unparse(each) == "None" for each in spare):
        yield "None argument"


def _of_configs(module: Module, configs: ast.expr, function: ast.FunctionDef) -> Iterator[str]:
    text = module.text(configs)
    kind = {ast.List: "literal", ast.ListComp: "comprehension", ast.Name: "name", ast.Call: "function"}
    yield f"configs by {kind.get(type(configs), 'expression')}"
    if re.search(r"Config\((kwargs=)?\{\}", text):
        yield "config of options alone"
    if "pre_hook=" in text:
        yield "pre_hook of configs"
    yield from (f"{each} of configs" for each in _OPTIONS if re.search(rf"\b{each}=", text))
    if re.search(r"waves_per_eu|matrix_instr_nonkdim|kpack|num_ldmatrixes", text):
        yield "option of AMD's compiler among params"
    if re.search(r"num_consumer_groups|num_buffers_warp_spec|reg_dec_producer", text):
        yield "option of configs that Triton has no longer"
    if re.search(r"(tl|torch)\.(float|bfloat|int)\d+", text):
        yield "type as a config's value"
    if re.search(r": None|: \"|: '", text):
        yield "text or None as a config's value"


def _of_key(module: Module, key: ast.expr | None, function: ast.FunctionDef, layers: list[ast.expr]) -> Iterator[str]:
    key = module.given.get(key.id) if isinstance(key, ast.Name) else key
    names = [each.value for each in key.elts if isinstance(each, ast.Constant)] if isinstance(key, ast.List) else []
    if not names:
        yield "empty key" if key is None or ast.unparse(key) == "[]" else "key by an expression"
    constant = {
        each.arg for each in function.args.args if each.annotation and "constexpr" in ast.unparse(each.annotation)
    }
    known = {each.arg for each in function.args.args}
    heuristics = [ast.unparse(each) for each in layers if "heuristics" in _name(each)]
    derived = {name for text in heuristics for name in re.findall(r"'(\w+)':", text)}
    for name in names:
        if name not in known:
            yield "key of no argument"
        elif name in derived:
            yield "key of a heuristic's value"
        elif re.match(r"(IS|HAS|USE|STORE|SAVE|RECOMPUTE|EVEN|CAUSAL|NEED|APPLY|OUTPUT|BIAS|TRANS)", name):
            yield "key of a flag"
        elif re.search(r"dtype|DTYPE|[Aa]ct", name):
            yield "key of a type or text"
        elif name in constant:
            yield "key of a constant"
        else:
            yield "key of a number"


def _of_body(module: Module, function: ast.FunctionDef) -> Iterator[str]:
    arguments = {each.arg for each in function.args.args}
    for each in function.args.args:
        annotation = ast.unparse(each.annotation) if each.annotation is not None else ""
        if re.fullmatch(r"tl\.(float|bfloat|int|uint)\d+", annotation):
            yield "number with a type"
    if any("dtype" in each.lower() or each.endswith("_TYPE") for each in arguments):
        yield "type as an argument"
    if (_roots(function, "load") & _roots(function, "store")) & arguments:
        yield "in place"
    for each in ast.walk(function):
        if isinstance(each, ast.Compare) and isinstance(each.left, ast.Name) and each.left.id in arguments:
            if isinstance(each.ops[0], ast.Is | ast.IsNot):
                yield "None argument"
            if isinstance(each.comparators[0], ast.Constant) and isinstance(each.comparators[0].value, str):
                yield "text argument"
        if isinstance(each, ast.Call):
            yield from _of_call(module, each, arguments)
        if isinstance(each, ast.keyword) and each.arg == "warp_specialize":
            yield "warp specialisation"
        if isinstance(each, ast.Subscript) and isinstance(each.value, ast.Name) and each.value.id in arguments:
            yield "tuple argument"
        if isinstance(each, ast.Attribute) and (lost := _unknown(ast.unparse(each), module)):
            yield lost
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load) and each.id in module.given:
            yield "constant of the module"


def _of_call(module: Module, call: ast.Call, arguments: set[str]) -> Iterator[str]:
    name = ast.unparse(call.func)
    if name in arguments:
        yield "function argument"
    elif isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) in arguments:
        yield "descriptor from the host" if call.func.attr in _DESCRIPTOR else "method of an argument"
    elif "make_tensor_descriptor" in name:
        yield "descriptor on the device"
    elif "make_block_ptr" in name:
        yield "block pointer"
    elif "atomic" in name:
        yield "atomics"
    elif "inline_asm" in name:
        yield "inline assembler"
    elif "libdevice" in name or "tl_extra" in name:
        yield "libdevice"
    elif name in module.functions:
        yield "helper of the module"
        helper = module.functions[name]
        for given, parameter in zip(call.args, helper.args.args, strict=False):
            if isinstance(given, ast.Name) and given.id in arguments:
                used = {ast.unparse(each.func) for each in ast.walk(helper) if isinstance(each, ast.Call)}
                if used & {f"{parameter.arg}.{method}" for method in _DESCRIPTOR}:
                    yield "descriptor from the host"
    elif name.split(".")[0] in module.imported and name.split(".")[0] not in ("tl", "triton", "gl", "gluon"):
        yield "helper of another module"


def _unknown(text: str, module: Module) -> str:
    """Return the form of a name that the installed Triton's language does not have; empty for another."""
    if not re.fullmatch(r"tl(\.\w+)+", text) or module.imported.get("tl") not in ("triton.language", "triton", None):
        return ""
    return "" if _has(text) else f"{text}, which Triton has not"


@cache
def _importable(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ImportError:
        return False


@cache
def _has(text: str) -> bool:
    import triton.language.extra.libdevice  # noqa: F401
    from triton import language

    found: Any = language
    for name in text.split(".")[1:]:
        found = getattr(found, name, None)
    return found is not None


def _roots(function: ast.FunctionDef, operation: str) -> set[str]:
    """Return the names that stand first in the pointers of loads or stores, through assignments of the kernel."""
    found = set()
    origin = {}
    for each in ast.walk(function):
        if isinstance(each, ast.Assign | ast.AugAssign):
            target = each.targets[0] if isinstance(each, ast.Assign) else each.target
            if isinstance(target, ast.Name) and (root := _first(each.value)) not in (None, target.id):
                origin.setdefault(target.id, root)
        if isinstance(each, ast.Call) and ast.unparse(each.func) == f"tl.{operation}" and each.args:
            found.add(_first(each.args[0]))
    for _ in range(4):
        found |= {origin[name] for name in found if name in origin}
    return {name for name in found if name}


def _first(node: ast.expr) -> str | None:
    while isinstance(node, ast.BinOp):
        node = node.left
    if isinstance(node, ast.Call) and "make_block_ptr" in ast.unparse(node.func) and node.args:
        return _first(node.args[0])
    return node.id if isinstance(node, ast.Name) else None


def _name(decorator: ast.expr) -> str:
    return ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)
