"""Facts about a Triton kernel on which a table and its loader must agree. Needs the standard library alone."""

import ast
import copy
import enum
import hashlib
import inspect
import numbers
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from types import FunctionType, MethodType, ModuleType
from typing import Any
from urllib.parse import quote, unquote

VALUE_TEXT = re.compile(
    r"True|False|None|-?[0-9]{1,30}|-?([0-9]+(\.[0-9]+)?(e[+-]?[0-9]{1,3})?|inf)|nan|'[\w.~%-]{0,298}'|(tl|torch)\.\w+",
    re.ASCII,
)
"""Text of an argument that is no tensor: `4096`, `True`, `None`, `1e-06`, `'relu'`, `tl.fp32`, `torch.float32`."""
_WORDS = {"True": True, "False": False, "None": None}
_DEF = re.compile(r"^def\s+\w+\s*\(", re.MULTILINE)


def layers(kernel: Any) -> Iterator[Any]:  # noqa: ANN401 (Triton has no types)
    """Yield a kernel's decorators from the outermost one, such as `Heuristics`, to its `JITFunction`."""
    while not isinstance(kernel, FunctionType | MethodType | ModuleType) and hasattr(kernel, "fn"):
        yield kernel
        kernel = kernel.fn


def python_function(kernel: Any) -> Any:  # noqa: ANN401 (Triton has no types)
    """Return the Python function below decorators such as `triton.jit` and `triton.autotune`; None below none."""
    *_, kernel = kernel, *(layer.fn for layer in layers(kernel))
    return kernel if inspect.isfunction(kernel) else None


def autotuner_of(kernel: Any) -> Any:  # noqa: ANN401 (Triton has no types)
    """Return the decorator of a kernel that is Triton's `Autotuner`, or is made like it; None without one.

    A wrapper that shows the attributes of the autotuner below it is none.

    Raises:
        ValueError: the kernel has two.
    """
    made_alike = (each for each in layers(kernel) if all(hasattr(each, name) for name in ("configs", "keys", "cache")))
    found = {id(each.keys): each for each in made_alike}  # the innermost of those that share a key
    if len(found) > 1:
        raise ValueError("has two autotuners: leave one")
    return next(iter(found.values()), None)


def text_of(value: object) -> str | None:
    """Return an argument that is no tensor as text, with its type; None if it is of no type that a row can hold."""
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return repr(float(value))
    if isinstance(value, str):
        return f"'{quote(value, safe='')}'"
    if type(value).__name__ == "dtype":
        text = f"tl.{value}" if type(value).__module__.startswith("triton") else str(value)
        return text if VALUE_TEXT.fullmatch(text) else None
    return None


def value_of(text: str) -> Any:  # noqa: ANN401 (an argument of a kernel)
    """Return the argument of a text of `text_of`; a type needs Triton or torch; raises ValueError for another text."""
    if not VALUE_TEXT.fullmatch(text):
        raise ValueError(f"{text[:80]!r} is no argument such as 4096, True, None, 1e-06, 'relu' or tl.fp32")
    if text in _WORDS:
        return _WORDS[text]
    if text.startswith("'"):
        return unquote(text[1:-1])
    module, dot, name = text.partition(".")
    if dot and module in ("tl", "torch"):
        return _dtype(module, name)
    return int(text) if text.removeprefix("-").isdigit() else float(text)


def _dtype(module: str, name: str) -> Any:  # noqa: ANN401 (Triton has no types)
    try:
        found = (
            getattr(import_module("torch"), name) if module == "torch" else import_module("triton.language").dtype(name)
        )
    except (AssertionError, AttributeError):
        found = None
    if type(found).__name__ != "dtype":
        raise ValueError(f"{module}.{name} is no type that the installed {module} has")
    return found


def source_sha256(kernel: Any) -> str:  # noqa: ANN401 (Triton has no types)
    """Return the SHA-256 of what Triton compiles of a kernel, whatever decorates it.

    That is its source, the source of the decorated functions that it reaches in any module but Triton's own, and of
    the plain ones in the user's, and the values of constants that these name. Line numbers and paths do not count.
    """
    texts: dict[Any, tuple[str, str]] = {}
    waiting = [python_function(kernel)]
    while waiting:
        function = waiting.pop()
        if function in texts:
            continue
        source = textwrap.dedent(inspect.getsource(function))
        found = _DEF.search(source)
        source = source[found.start() if found else 0 :].strip()
        texts[function] = function.__qualname__, source
        for name, value in _named(function, source):
            constant = constant_text(value)
            if getattr(value, "noinline", False):
                constant = "noinline"
            if constant is not None:
                texts[function, name] = f"{function.__qualname__} {name}", f"{name}={constant}"
            waiting += _functions(value)
    return hashlib.sha256("\n".join(text for _, text in sorted(texts.values())).encode()).hexdigest()


def _functions(value: Any) -> Iterator[Any]:  # noqa: ANN401 (anything that a kernel names)
    """Yield the functions that Triton compiles for a value, or calls while it compiles."""
    for each in getattr(value, "hash_attrs", ()):  # of an aggregate
        yield from _functions(each)
    below = python_function(value)
    if below is not None and not (is_others if below is value else _is_tritons)(below.__module__):
        yield inspect.unwrap(below)


def constant_text(value: Any) -> str | None:  # noqa: ANN401 (a constant)
    """Return a constant as text with its type, or an enum, list or dict of constants alone; None for anything else."""
    if type(value).__name__ == "constexpr":
        value = value.value
    if isinstance(value, set | frozenset):
        value = sorted(value, key=repr)
    if isinstance(value, enum.Enum):
        return f"{value}={constant_text(value.value)}"
    if isinstance(value, tuple | list):
        texts = [constant_text(each) for each in value]
        return None if None in texts or not texts else f"({','.join(map(str, texts))})"
    if isinstance(value, dict):
        return constant_text([*value.items()])
    return text_of(value) or (repr(value) if isinstance(value, numbers.Number) else None)  # such as numpy's


def _named(function: Any, source: str) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 (a Python function)
    """Yield names in a function's source that are no local ones, `SCALE` or `module.SCALE`, with their values."""
    tree = ast.parse(source)
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    local = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    local |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
    known = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
    inner = set[ast.AST]()
    for node in ast.walk(tree):  # from the outside: the longest chain of attributes first
        chain, at = list[str](), node
        while isinstance(at, ast.Attribute):
            chain, at = [at.attr, *chain], at.value
        if node in inner or not isinstance(at, ast.Name) or at.id in local or at.id not in known:
            continue
        inner |= {each for each in ast.walk(node) if isinstance(each, ast.Attribute | ast.Name)}
        value = known[at.id]
        for attribute in chain:
            if isinstance(value, ModuleType) and _is_tritons(value.__name__):
                break
            value = getattr(value, attribute, None)
        if not isinstance(value, ModuleType):
            yield ".".join((at.id, *chain)), value


def is_others(module: str | None) -> bool:
    """Return whether a module is not the user's, but one of Python or of a known package."""
    return (module or "").partition(".")[0] in sys.stdlib_module_names | {"torch", "triton", "numpy", "gemmtune"}


def _is_tritons(module: str) -> bool:
    return module.partition(".")[0] == "triton"


def defaults_of(kernel: Any) -> dict[str, Any]:  # noqa: ANN401 (Triton has no types)
    """Return the defaults of a kernel's arguments by name."""
    signature = inspect.signature(python_function(kernel)).parameters
    return {name: each.default for name, each in signature.items() if each.default is not each.empty}


def twin_of(config: Any) -> Any:  # noqa: ANN401 (Triton has no types)
    """Return a copy of a config for a pruning, which may change what it is given."""
    twin = copy.copy(config)
    twin.kwargs = dict(config.kwargs)
    return twin


def hook_of(configs: Sequence[Any], kwargs: Mapping[str, object], defaults: Mapping[str, object]) -> Any:  # noqa: ANN401
    """Return the `pre_hook` that a config of these kwargs has in an autotuner's list, or of defaults; None for none.

    Raises:
        ValueError: the list has hooks, and does not say which one, if any, these kwargs have.
    """
    hooks = [config.pre_hook for config in configs]
    left_out = {name: defaults[name] for name in kwargs if name in defaults}
    alike = [config.pre_hook for config in configs if {**left_out, **config.kwargs} == kwargs] or hooks
    if len({id(hook) for hook in alike}) > 1 and len({_likeness(hook) for hook in alike}) > 1:
        raise ValueError(
            f"its configs' pre_hooks differ, and no config has {dict(kwargs)}: give the autotuner one with its hook"
        )
    return alike[0] if alike else None


def _likeness(hook: Any) -> object:  # noqa: ANN401 (a user's function)
    """Return what makes hooks equal: their code and what it closes over."""
    if not inspect.isfunction(hook):
        return hook
    return hook.__code__, repr(inspect.getclosurevars(hook).nonlocals), repr(hook.__defaults__)


def param_text(value: object) -> object:
    """Return a param's value as a config holds it: None and types as the texts `None` and `tl.fp32`."""
    text = text_of(value)
    return text if text is not None and _is_param_text(text) else value


def param_value(value: Any) -> Any:  # noqa: ANN401 (a param's value)
    """Return a param's value as Triton takes it; raises like `value_of`."""
    return value_of(value) if isinstance(value, str) and _is_param_text(value) else value


def _is_param_text(text: str) -> bool:
    return text == "None" or bool(re.fullmatch(r"(tl|torch)\.\w+", text, re.ASCII))
