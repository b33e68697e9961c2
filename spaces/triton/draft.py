"""First draft of the class that describes a user's kernel, from the kernel's source and decorators. Imports Triton."""

import importlib
import inspect
import keyword
import re
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

from gemmtune.engine.consumers.triton.contract import python_function
from gemmtune.engine.io.blame import STOPS, account
from gemmtune.engine.records.errors import ProblemError, did_you_mean
from gemmtune.spaces.triton.decorators import OPTIONS, decorators_of
from gemmtune.spaces.triton.definition import TODO, module_of
from gemmtune.spaces.triton.derived_reference import derived_reference, local_name
from gemmtune.spaces.triton.reading import Pointer, Reading, read_kernel

_TILE = re.compile(r"block|tile|chunk|group|^b[mnk]$|split", re.IGNORECASE)
_FLOATS = {"eps": "1e-6", "epsilon": "1e-6"}
_FLOAT = re.compile(r"scale|alpha|beta|factor|dropout|slope|^p$|momentum|(^|_)lr$", re.IGNORECASE)
_TENSOR = re.compile(r"ptr", re.IGNORECASE)
_FEW = re.compile(r"batch|head|^[bh]$|^z$", re.IGNORECASE)
_MOST_DIMS = 2  # of a shape that is read without doubt
_WIDTH = 88  # of a line, beyond which formatters break it
_ONE_SIZE, _SIZE, _CONSTANT_SIZE, _FEW_SIZE = 1 << 24, 4096, 128, 16


def draft(named: str) -> tuple[str, str]:
    """Return the name and the module's text of a class for the kernel that `MODULE:KERNEL` or `FILE.py:KERNEL` names.

    Raises:
        ProblemError: the name is malformed, what it names cannot be imported or is no kernel of Triton, or a decorator
            does what gemmtune does not.
    """
    where, colon, name = named.rpartition(":")
    if not colon or not name.isidentifier() or not where:
        raise ProblemError(f"kernel {named!r} is not MODULE:KERNEL or FILE.py:KERNEL, for example ./softmax.py:kernel")
    if where.endswith(".py") and "." in Path(where).stem:
        raise ProblemError(f"no program imports a file with a dot in its name: rename {Path(where).name}")
    module = _imported(where, name)
    kernel = getattr(module, name, None)
    if python_function(kernel) is None or inspect.isfunction(kernel):
        known = [n for n, value in vars(module).items() if python_function(value) and not inspect.isfunction(value)]
        meant = did_you_mean(name, known)
        raise ProblemError(f"{where} has no kernel {name} of Triton; {meant}known: {', '.join(known) or 'none'}")
    try:
        return _Draft(kernel, name, Path(where).stem if where.endswith(".py") else where).written()
    except ValueError as error:
        raise ProblemError(f"{name}: {error}") from None


def _imported(where: str, name: str) -> Any:  # noqa: ANN401 (a user's module)
    if where.endswith(".py"):
        file = Path(where).resolve()
        packages = [*takewhile(lambda each: (each / "__init__.py").is_file(), file.parents)]
        try:
            return module_of(file)
        except ProblemError as error:
            if not packages or not isinstance(error.__cause__, ImportError):
                raise
            module = ".".join([*(each.name for each in reversed(packages)), file.stem])
            way_out = f"it is a part of a package: name {module}:{name} in {packages[-1].parent}"
            raise ProblemError(f"{error}; {way_out}") from error.__cause__
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(where)
    except STOPS:
        raise
    except BaseException as error:  # the module is the user's
        raise ProblemError(f"{where} cannot be imported: {account(error)}") from error


class _Draft:
    """Parts of a kernel, and the lines of its class."""

    def __init__(self, kernel: Any, name: str, module: str) -> None:  # noqa: ANN401 (Triton has no types)
        self._parts = decorators_of(kernel)
        self._name, self._module = name, module
        params = self._parts.jit.params
        signature = inspect.signature(python_function(kernel)).parameters
        self._given = {each for config in self._parts.configs for each in config.kwargs}
        self._given |= {each for each, _ in (*self._parts.outer, *self._parts.inner)}
        self._left_out = {each for each, its in signature.items() if its.default is not its.empty}
        self._constants = [each.name for each in params if each.is_constexpr]
        self._names = [each.name for each in params]
        tuned = [each for each in self._constants if each in self._given or _TILE.search(each)]
        self._reading: Reading = read_kernel(self._parts.jit.src, self._constants, tuned)
        self._tensors = {each: self._reading.pointers[each] for each in self._names if each in self._reading.pointers}
        self._strides = {
            stride: f"{local_name(tensor)}.stride({number})"
            for tensor, its in reversed(self._tensors.items())
            for number, stride in enumerate(self._dims(its))
            if stride != "1" and stride not in self._reading.sizes
        }
        covering = self._reading.covering
        free = [each for each in self._constants if each not in self._given]
        self._params = [] if self._parts.configs else [e for e in free if _TILE.search(e) and e not in covering]
        self._cases: dict[str, int] = {}

    def written(self) -> tuple[str, str]:
        """Return the class's name and the module's text."""
        title = "".join(part[:1].upper() + part[1:] for part in re.sub("_?kernel_?", "_", self._name).split("_"))
        title = title if _is_name(title) else f"Kernel{title}"
        arguments, grid = list(self._arguments()), list(self._grid())
        kernel = local_name(self._name)
        if all(map(_is_name, self._module.split("."))):
            bound = f" as {kernel}" if kernel != self._name else ""
            source = ["", f"from {self._module} import {self._name}{bound}"]
        else:
            kernel, source = f'importlib.import_module("{self._module}").{self._name}', []
        body = "\n".join([*self._attributes(kernel), "", *arguments, "", *grid, "", *self._reference()])
        imports = [f"import {each}" for each in ("importlib", "torch", "triton") if f"{each}." in body]
        about = f'"""First draft of a class that describes {self._name}: fill in each {TODO} and delete its line."""'
        head = [about, "", *imports, *(source if imports else source[1:])]
        lines = "\n".join([*head, "", "", f"class {title}:", body, ""]).split("\n")
        return title, "\n".join(map(_kept, lines))

    def _attributes(self, kernel: str) -> Iterator[str]:
        yield f"    kernel = {kernel}"
        if not self._parts.configs:
            options = {"num_warps": (2, 4, 8, 16)} | dict.fromkeys({"num_stages"} & {*self._names}, (2, 3, 4, 5))
            values = {each: _values(each) for each in self._params} | options
            yield from _todo("values to try, and the config that your program runs today")
            yield from _dict("params", {name: repr(its) for name, its in values.items()})
            yield from _dict("default", {name: str(its[len(its) // 2 - 1]) for name, its in values.items()})
        yield from _todo("sizes that your program runs, a line per case")
        yield "    cases = {"
        sizes = [f'"{name}": {size}' for name, size in self._cases.items()]
        line = f'        "one": {{{", ".join(sizes)}}},'
        yield from (
            [line] if len(line) <= _WIDTH else ['        "one": {', *(f"            {s}," for s in sizes), "        },"]
        )
        yield "    }"
        outputs = [name for name, its in self._tensors.items() if its.stored]
        if not outputs:
            yield from _todo("names of the tensors that the kernel writes")
        yield f"    outputs = {_tuple(outputs)}"
        kept = [name for name in outputs if self._is_restored(name)]
        if kept:
            yield f"    restore = {_tuple(kept)}"

    def _arguments(self) -> Iterator[str]:
        yield "    def arguments(self, case, make):"
        lines: dict[str, str] = {}
        for name, its in self._tensors.items():
            yield from self._tensor(name, its)
            lines[name] = local_name(name)
        asked: dict[str, list[str]] = {}
        for name in self._names:
            skipped = name in (*self._given, *self._params, *OPTIONS)
            if not skipped and name not in lines and (name not in self._left_out or name in self._reading.sizes):
                said, lines[name] = self._value(name)
                asked.setdefault(said, []).append(name)
        for said in filter(None, asked):
            yield from _todo(said.format(", ".join(asked[said])), "        ")
        yield "        return {"
        yield from (f'            "{name}": {lines[name]},' for name in self._names if name in lines)
        yield "        }"

    def _tensor(self, name: str, its: Pointer) -> Iterator[str]:
        """Yield the lines that make a tensor."""
        made, dims = f"        {local_name(name)} = make", self._dims(its)
        sizes = [its.dims[each] for each in dims]
        if not sizes or not all(sizes) or len(sizes) > _MOST_DIMS:
            yield from _todo(f"shape of {name}", "        ")
        shape = _tuple([self._size(each) if each else "1" for each in sizes] or ["1"], quote="")
        if its.indexes:
            yield f"{made}.integers(0, {self._size(its.indexes)}, {shape})"
        elif its.stored and (not its.loaded or name in self._parts.zeroed):
            each_row = len(sizes) == 1 and sizes[0].startswith("rows")
            yield f"{made}.empty({shape}{', torch.float32' if each_row or its.added else ''})"
        elif its.added:
            yield f"{made}.zeros({shape}, torch.float32)"
        else:
            yield f"{made}.normal({shape})"

    def _value(self, name: str) -> tuple[str, str]:
        """Return what a person must say about arguments of a kind, or nothing, and this one's value."""
        if name in self._reading.covering:
            return "", f"triton.next_power_of_2({self._size(self._reading.covering[name])})"
        if name in self._reading.sizes:
            return "", self._size(name)
        if name in self._strides:
            return "", self._strides[name]
        if name in self._constants:
            return "values of {} in your program", "None"
        if name.lower() in _FLOATS or _FLOAT.search(name):
            return "", _FLOATS.get(name.lower(), "1.0")
        if _TENSOR.search(name):
            return "shapes of {}, and whether they are among the outputs", "make.normal((1,))"
        if "stride" in name.lower():
            return "tensors and dimensions of {}", "1"
        return "", self._size(name)

    def _grid(self) -> Iterator[str]:
        yield "    def grid(self, case, meta):"
        axes = self._reading.grid
        if not all(axes):
            yield from _todo("blocks to launch along each axis, as your program does", "        ")
        names = []
        for number, factors in enumerate(axes):
            sizes = [(self._size(size), constant) for size, constant in factors]
            told = [f'triton.cdiv({size}, meta["{of}"])' if of else size for size, of in sizes] or ["1"]
            for part, text in enumerate(told):
                marks = [str(number)] * (len(axes) > 1) + [str(part)] * (len(told) > 1)
                names.append("_".join(["blocks", *marks]))
                yield f"        {names[-1]} = {text}"
            names[-len(told) :] = [" * ".join(names[-len(told) :])]
        yield f"        return {_tuple(names, quote='')}"

    def _reference(self) -> Iterator[str]:
        outputs = [name for name, its in self._tensors.items() if its.stored]
        yield "    def reference(self, case, arguments):"
        known = {name: [its.dims[each] for each in self._dims(its)] for name, its in self._tensors.items()}
        derived = derived_reference(self._parts.jit.src, self._reading, known, list(self._cases))
        if derived:
            yield "        # Read from the kernel's source: look it over."
            yield from (f"        {line}" for line in derived)
            return
        for name, its in self._tensors.items():
            if its.loaded:
                yield f'        {local_name(name)} = arguments["{name}"]{"" if its.indexes else ".double()"}'
        yield from _todo("what the kernel computes, with torch", "        ")
        yield f"        return {{{'' if outputs else '}'}"
        yield from (
            f'            "{name}": {local_name(name) if self._tensors[name].loaded else None},' for name in outputs
        )
        yield from ["        }"] if outputs else []

    def _dims(self, its: Pointer) -> list[str]:
        """Return the strides of a tensor in the order of its dimensions: the arguments' order, and the unit last."""
        return sorted(its.dims, key=lambda each: (each == "1", self._names.index(each) if each in self._names else 0))

    def _is_restored(self, name: str) -> bool:
        its = self._tensors[name]
        return its.loaded and name not in (*self._parts.zeroed, *self._parts.restored)

    def _size(self, name: str) -> str:
        """Return the text of a size, which becomes one of the case."""
        if name not in self._cases:
            few = _FEW_SIZE if _FEW.search(name) else _SIZE
            alone = len(self._reading.sizes) == 1
            size = _CONSTANT_SIZE if name in self._constants else _ONE_SIZE if alone else few
            self._cases[name] = size
        return f'case["{name}"]'


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)


def _values(name: str) -> tuple[int, ...]:
    """Return values to try of a tile's width."""
    if re.search(r"group|split", name, re.IGNORECASE):
        return (1, 4, 8)
    return (32, 64, 128) if re.search(r"(_|^b|size)[mnk]$", name, re.IGNORECASE) else (256, 512, 1024, 2048)


def _kept(line: str) -> str:
    """Return a line, one that is too long with the comment by which formatters leave it."""
    is_statement = line.startswith("from ") or "= " in line.partition("#")[0]
    return f"{line}  # fmt: skip" if len(line) > _WIDTH and is_statement else line


def _todo(text: str, indent: str = "    ") -> Iterator[str]:
    yield f"{indent}# {TODO}: {text}"


def _dict(name: str, values: dict[str, str]) -> Iterator[str]:
    yield f"    {name} = {{"
    yield from (f'        "{each}": {text},' for each, text in values.items())
    yield "    }"


def _tuple(names: list[str], quote: str = '"') -> str:
    return f"({', '.join(f'{quote}{each}{quote}' for each in names)}{',' if len(names) == 1 else ''})"
