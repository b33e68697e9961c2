"""Cases of a user's own Triton kernel, which a class in the user's file describes."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import ProblemError, UnknownDefinition, did_you_mean
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams.workload import DryLaunch, Expected, Operands, TensorSource, WorkloadKind, gemm_like
from gemmtune.engine.toolchain.installed import require_extra
from gemmtune.spaces.triton.case_parts import KernelOperands, integers_of, names_of, pairs_text, values_of

if TYPE_CHECKING:
    import torch

    from gemmtune.spaces.triton.definition import Definition

_NEEDED = ("triton", "a kernel of your own", "torch", "triton")
"""Extra, purpose and modules of whatever imports a user's file."""
_NAME = re.compile(
    r"triton:(?P<kernel>[A-Za-z_]\w*)@(?P<source>[0-9a-f]{12}):(?P<sizes>\w+=[0-9]+(,\w+=[0-9]+)*)(?P<values>~[0-9a-f]{8})?"
)
_TOLERANCE = {"bfloat16": 8e-3, "float16": 1e-3} | dict.fromkeys(
    ("float32", "float64", "complex64", "complex128"), 1e-4
)
"""Largest relative error by the output's type; see `gemm.py`. 8-bit floats have 0.04, other types none."""
_TOLERANCE_8_BIT = 0.04


@dataclass(frozen=True, slots=True)
class KernelCase(Workload):
    """Sizes that a user's kernel is called with, and what follows from them for a launch."""

    kind: ClassVar[str] = "triton"
    baseline_space: ClassVar[str] = "triton_default"
    baseline_words: ClassVar[str] = "the kernel's default config"
    searched_space: ClassVar[str] = "triton_kernel"

    kernel: str
    """Name of the user's class."""
    source: str
    """First 12 digits of the SHA-256 of the kernel, its decorators, and the class's `arguments` and `grid`."""
    case: tuple[tuple[str, int], ...]
    """Sizes by name, in the class's order."""
    nearest: str = ""
    """Name of the size that the exported table may match by the nearest value; empty for none."""
    scalars: tuple[tuple[str, str], ...] = ()
    """Arguments that are no tensors, by name, as texts such as `4096`, `True` or `tl.fp32`."""
    keys: tuple[str, ...] | None = None
    """Names in the key of the kernel's autotuner; None without one."""
    dtypes: tuple[str, ...] = ()
    """Types of the tensors among the kernel's arguments, in order, as `torch.bfloat16`."""
    default: str = ""
    """Config that the user runs untuned, as JSON; empty if the class says none."""
    kernel_sha256: str = ""
    """SHA-256 of the kernel's source, which the exported table's loader compares."""
    operations: int = 0
    """Number of arithmetic operations of one launch; 0 where the class does not say it."""
    least_bytes: int = 1
    """Bytes that one launch must move: the class's, else those of the outputs."""
    operand_bytes: int = 1
    """Size of all tensors, in bytes."""
    parts: tuple[tuple[str, str], ...] = field(default=(), compare=False, repr=False)
    """Text of each part of the class behind `source`, by a word for messages; empty without a file."""
    file: str = field(default="", compare=False, repr=False)
    """Path of the user's file on this machine; empty for a case that was read from a database."""
    weight: float = field(default=1.0, compare=False)
    """Call frequency in the user's program, relative to the other workloads."""

    @property
    def untuned_config(self) -> Config | None:
        """Config that runs untuned: the class's, or the first that the autotuner keeps and that builds."""
        return Config.from_json(self.default) if self.default else None

    @property
    def name(self) -> str:
        """Canonical text, `triton:Softmax@1a2b3c4d5e6f:M=4096,N=1024~0f1e2d3c`; after `~`, digits of the arguments."""
        return f"triton:{self.kernel}@{self.source}:{pairs_text(self.case)}~{_digits(self.scalars, self.dtypes)}"

    @property
    def flops(self) -> int:
        """Number of arithmetic operations of one launch; 0 where it is unknown."""
        return self.operations

    @property
    def min_bytes(self) -> int:
        """Bytes that one launch must move."""
        return self.least_bytes

    @property
    def sizes(self) -> Mapping[str, int]:
        """Sizes of the case."""
        return dict(self.case)

    @property
    def learns_from(self) -> str:
        """Kernel and source: no other kernel has the same parameters."""
        return f"triton:{self.kernel}@{self.source}"

    @property
    def described_by(self) -> tuple[str, str]:
        """Class with its kernel, and the hash that an edit of `arguments` or `grid` changes, too."""
        return f"triton:{self.kernel}@{self.kernel_sha256}", self.source

    @property
    def range_size(self) -> str:
        """Size that the exported table may match by the nearest value."""
        return self.nearest

    @property
    def series(self) -> Self:
        """Case at range size 1, without what follows from the sizes."""
        return self._at({self.nearest: 1}) if self.nearest else self

    @property
    def family(self) -> Self:
        """Case with every size 1, without what follows from the sizes."""
        return self._at(dict.fromkeys(self.sizes, 1))

    def resized(self, size: int, weight: float | None = None) -> Self:
        """Return the case at another value of `nearest`; needs the user's file."""
        if not self.nearest:
            raise ProblemError(f"{self.name} has no range size: give the class an attribute `nearest`")
        sizes = {**self.sizes, self.nearest: size}
        found = case_of(definition_of(self), sizes, self.weight if weight is None else weight)
        return replace(self, **{name: getattr(found, name) for name in (*_DERIVED, "case", "file", "parts", "weight")})

    def to_fields(self) -> dict[str, str]:
        """Return every compared field as text."""
        return {
            "kernel": self.kernel,
            "source": self.source,
            "case": pairs_text(self.case),
            "nearest": self.nearest,
            "scalars": pairs_text(self.scalars),
            "keys": "" if self.keys is None else f"[{','.join(self.keys)}]",
            "dtypes": ",".join(self.dtypes),
            "default": self.default,
            "kernel_sha256": self.kernel_sha256,
            **{name: str(getattr(self, name)) for name in ("operations", "least_bytes", "operand_bytes")},
        }

    def _at(self, sizes: Mapping[str, int]) -> Self:
        case = tuple({**self.sizes, **sizes}.items())
        bare = replace(self, case=case, scalars=(), default="", weight=1.0)
        return replace(bare, operations=0, least_bytes=1, operand_bytes=1)


_DERIVED = ("scalars", "dtypes", "default", "operations", "least_bytes", "operand_bytes")


@lru_cache(4096)
def _digits(scalars: tuple[tuple[str, str], ...], dtypes: tuple[str, ...]) -> str:
    return hashlib.sha256(repr((scalars, dtypes)).encode()).hexdigest()[:8]


class TritonKernelKind(WorkloadKind[KernelCase]):
    """Own Triton kernels: a text names the class in a file, or a case of a kernel that was loaded from one."""

    dry_consumer: ClassVar[str] = "triton"

    def parse(self, text: str) -> KernelCase:
        """Return one case: `triton:Softmax@1a2b3c4d5e6f:M=4096,N=1024`, or of a file with one case alone.

        Raises:
            ProblemError: the text is malformed, or the kernel's file is not known here.
        """
        named = _NAME.match(text)
        if named is None:
            found = self.expand(text)
            if len(found) > 1:
                names = ", ".join(pairs_text(case.case) for case in found)
                raise ProblemError(f"{text} has {len(found)} cases: add one behind a colon, {names}")
            return found[0]
        rest = text[named.end() :].removeprefix(":")
        fields = dict(part.partition("=")[::2] for part in rest.split(";")) if rest else {}
        identity = {"kernel": named["kernel"], "source": named["source"], "case": named["sizes"]}
        if fields:
            return self.from_fields({**fields, **identity})
        definition = _loaded.get((named["kernel"], named["source"]))
        if definition is None:
            raise ProblemError(f"{text}: no file of this kernel was read here; name triton:FILE.py:{named['kernel']}")
        case = case_of(definition, dict(integers_of("case", named["sizes"])))
        if named["values"] and case.name != named[0]:
            raise ProblemError(f"{text}: the file gives this case other arguments, types or numbers: {case.name}")
        return case

    def expand(self, text: str) -> tuple[KernelCase, ...]:
        """Return the cases of `triton:FILE.py:Class`, or one: of `triton:FILE.py:Class:M=4096,N=1024`, or of a name.

        Raises:
            ProblemError: the file or the class is wrong.
        """
        if _NAME.match(text):
            return (self.parse(text),)
        where = text.strip().removeprefix("triton:")
        head, _, last = where.rpartition(":")
        where, wanted = (head, last) if "=" in last else (where, "")
        file, colon, name = where.rpartition(":")
        if not colon or not file.endswith(".py") or not name.isidentifier() or "\0" in file:
            raise ProblemError(f"kernel {where!r} is not FILE.py:CLASS, for example ./softmax.py:Softmax")
        definition = _definition(Path(file).resolve(), name)
        cases = [(pairs_text(tuple(sizes.items())), sizes, weight) for sizes, weight in definition.cases.values()]
        chosen = [case for case in cases if wanted in ("", case[0])]
        if not chosen:
            raise ProblemError(f"{where} has no case {wanted}; its cases: {', '.join(case[0] for case in cases)}")
        return tuple(case_of(definition, sizes, weight) for _, sizes, weight in chosen)

    def from_fields(self, fields: Mapping[str, str]) -> KernelCase:
        """Return the case of text fields; raises ProblemError if a field is unknown, missing or malformed."""
        known = set(KernelCase("", "", ()).to_fields())
        if unknown := sorted(set(fields) - known):
            meant = did_you_mean(unknown[0], known)
            names = ", ".join(sorted(known))
            raise ProblemError(f"unknown field {unknown[0]!r} of a kernel's case; {meant}known: {names}")
        for name in ("kernel", "source", "case"):
            if not fields.get(name):
                raise ProblemError(f"field {name!r} of a kernel's case is missing")
        if not re.fullmatch(r"[\w.<>]+@\w+", named := f"{fields['kernel']}@{fields['source']}"):
            raise ProblemError(f"{named[:80]!r} is no class with the digits of its source")
        numbers = {name: fields[name] for name in ("operations", "least_bytes", "operand_bytes") if fields.get(name)}
        if wrong := [name for name, text in numbers.items() if not re.fullmatch(r"[0-9]{1,18}", text)]:
            raise ProblemError(
                f"{wrong[0]}={numbers[wrong[0]][:80]!r} is not an integer from 0 on, of at most 18 digits"
            )
        return KernelCase(
            kernel=fields["kernel"],
            source=fields["source"],
            case=integers_of("case", fields["case"]),
            nearest=fields.get("nearest", ""),
            scalars=values_of("scalars", fields.get("scalars", "")),
            keys=names_of("keys", fields.get("keys", "")),
            dtypes=tuple(fields["dtypes"].split(",")) if fields.get("dtypes") else (),
            default=fields.get("default", ""),
            kernel_sha256=fields.get("kernel_sha256", ""),
            operations=int(numbers.get("operations", 0)),
            least_bytes=int(numbers.get("least_bytes", 1)),
            operand_bytes=int(numbers.get("operand_bytes", 1)),
        )

    def operands(self, workload: KernelCase, source: TensorSource, number: int) -> KernelOperands:
        """Return what the class's `arguments` makes."""
        definition = definition_of(workload)
        name = f"{workload.name}#{number}" if number else workload.name
        found = definition.tensors(workload.sizes, source, name)
        first = {each: found[each].clone() for each in definition.restored if found.get(each) is not None}
        return KernelOperands(found, definition.outputs, first, definition.zeroed, definition.run_hook)

    def expected(self, workload: KernelCase, operands: Operands) -> tuple[Expected, ...]:
        """Return what the class's `reference` computes."""
        assert isinstance(operands, KernelOperands)
        definition = definition_of(workload)
        operands.restore()
        found = definition.reference(workload.sizes, operands.by_name)
        tolerances = (
            definition.tolerance(name, out.dtype, default_tolerance(out.dtype))
            for name, out in zip(operands.written, operands.outputs, strict=True)
        )
        return tuple(
            Expected(_comparable(values, out), each, of_each=each)
            for values, out, each in zip(found, operands.outputs, tolerances, strict=True)
        )

    def untuned(self, workload: KernelCase) -> Iterator[KernelCase]:
        """Yield the case with each config that the autotuner keeps as its default; as it is if the class says one."""
        definition = definition_of(workload)
        defaults = () if definition.says_default else definition.seeds_of(workload.sizes)
        yield from (replace(workload, default=Config(each).json) for each in defaults)
        if not defaults:
            yield workload

    def launch_dry(self, workloads: Sequence[KernelCase], folder: Path, device: Device) -> tuple[DryLaunch, ...]:
        """Launch the kernel of the class through its decorators, with the exported loader of `folder`."""
        from gemmtune.spaces.triton.dry_launch import launch_dry

        return launch_dry(definition_of(workloads[0]), {case.name: case.sizes for case in workloads}, folder, device)

    def draft(self, kernel: str) -> tuple[str, str]:
        """Return the name and the text of a class for a kernel, `MODULE:KERNEL` or `FILE.py:KERNEL`."""
        require_extra(*_NEEDED)
        from gemmtune.spaces.triton.draft import draft

        return draft(kernel)

    def timed_beside(self, workload: KernelCase) -> Problem:
        """Return a GEMM that moves about the bytes of all tensors."""
        return gemm_like(max(workload.flops, 1), workload.operand_bytes, workload.weight)


_loaded: dict[tuple[str, str], Definition] = {}
_COMPILED = ("kernel", "arguments", "grid", "heuristics")
"""Parts of a class that builds and launches depend on; its configs and its default come with the case."""


def definition_of(workload: Workload) -> Definition:
    """Return the class of a case, loaded from its file.

    Raises:
        UnknownDefinition: no file of the workload was read in this process.
        ProblemError: the workload is of another kind, or its file has changed since.
    """
    if not isinstance(workload, KernelCase):
        raise ProblemError(f"{workload.name} is a workload of kind {workload.kind}, and this needs an own kernel")
    if not workload.file:
        known = _loaded.get((workload.kernel, workload.source))
        if known is None:
            way_out = f"name triton:FILE.py:{workload.kernel}"
            raise UnknownDefinition(f"{workload.name}: no file of this kernel was read here; {way_out}")
        return known
    found = _definition(Path(workload.file), workload.kernel)
    parts = dict(workload.parts)
    differing = [name for name, text in found.parts.items() if name in _COMPILED and text != parts.get(name, text)]
    if differing or (not parts and found.source != workload.source):
        raise ProblemError(
            f"{workload.file} gives {found.name} another {' and another '.join(differing) or 'source'} here than where "
            f"{workload.name} was read: it was edited since, or asks for a GPU on import, which builders do not see; "
            "choose it without asking for a GPU outside of functions"
        )
    return found


def definition_here(case: Workload) -> Definition:
    """Return the class of a case; raises ProblemError if `arguments` gives other values or types in this process."""
    definition = definition_of(case)
    assert isinstance(case, KernelCase)
    types = (str(each.dtype) for each in definition.tensors(case.sizes).values() if hasattr(each, "dtype"))
    here = {*definition.scalars(case.sizes).items(), ("types", tuple(types))}
    there = {*case.scalars, ("types", case.dtypes)}
    if here != there:
        raise ProblemError(
            f"arguments gives {dict(here - there)} here and {dict(there - here)} where {case.name} was read: it asks "
            "for a GPU on import, which builders do not see; choose it without asking for a GPU outside of functions"
        )
    return definition


def _definition(file: Path, name: str) -> Definition:
    require_extra(*_NEEDED)
    from gemmtune.spaces.triton.definition import load_definition

    found = load_definition(file, name)
    _loaded[found.name, found.source] = found
    return found


def case_of(definition: Definition, sizes: Mapping[str, int], weight: float = 1.0) -> KernelCase:
    """Return the case of these sizes and what follows from them; raises ProblemError if `arguments` fails."""
    import torch

    arguments = definition.tensors(sizes)
    tensors = {name: value for name, value in arguments.items() if isinstance(value, torch.Tensor)}
    outputs = [tensors[name] for name in definition.outputs]
    flops, moved = definition.number("flops", sizes), definition.number("bytes", sizes)
    default = definition.default_of(sizes)
    return KernelCase(
        kernel=definition.name,
        source=definition.source,
        case=tuple(sizes.items()),
        nearest=definition.nearest,
        scalars=tuple(definition.scalars(sizes).items()),
        keys=definition.decorators.keys,
        dtypes=tuple(str(tensor.dtype) for tensor in tensors.values()),
        default="" if default is None else Config(default).json,
        kernel_sha256=definition.kernel_sha256,
        operations=flops or 0,
        least_bytes=sum(out.nbytes for out in outputs) if moved is None else moved,
        operand_bytes=sum(math.prod(tensor.shape) * tensor.itemsize for tensor in tensors.values()),
        parts=tuple(definition.parts.items()),
        file=str(definition.file),
        weight=weight,
    )


def _comparable(values: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Return a right result as the check compares it with an output: in float32, unless that rounds integers."""
    if out.is_complex():
        return values.to(out.dtype)
    if out.is_floating_point() or out.itemsize == 1:
        return values.float()
    return values.double() if values.is_floating_point() else values


def default_tolerance(dtype: torch.dtype) -> float:
    """Return the largest relative error that rounding to a type may cause; 0 for integers."""
    if dtype.is_floating_point and dtype.itemsize == 1:
        return _TOLERANCE_8_BIT
    return _TOLERANCE.get(str(dtype).removeprefix("torch."), 0.0)
