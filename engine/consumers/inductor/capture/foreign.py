"""Products in files of other tools: AITER's lists and results (CSV), FlashInfer's configs (JSON), Inductor's log."""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from gemmtune.engine.consumers.inductor.capture.captured import CapturedProduct, Unseen
from gemmtune.engine.records.errors import ProblemError, UsageError
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.gemm.stated import bias_of, layout_of, stated_texts, unusual_strides
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams.kinds import parse_workload

_TYPES = {"torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.float32": "fp32"}
_MOE_TYPES = {"QuantType.per_Tensor": "fp8_tensor", "QuantType.per_1x128": "fp8_block"}
_GEMM_SIZES, _MOE_SIZES = ("M", "N", "K"), ("token", "model_dim", "inter_dim", "expert")
_AITER = re.compile(r"(\w+,)*(M,N,K|token,model_dim,inter_dim)(,|\s*$)")
_FLASHINFER = re.compile(r"\('([\w:]+)', '\w+', \(\(([\d, ]*)\)(?:, \(([\d, ]*)\))?(?:, \(([\d, ]*)\))?", re.ASCII)
_FLASHINFER_TYPES = {"bf16_gemm": "bf16", "bf16_tgv_gemm": "bf16", "fp16_tgv_gemm": "fp16"}
_OPS = ("mm", "addmm", "bmm", "baddbmm")
_NO_ROW = f"tables have rows of {', '.join(_OPS)} with one type of 16 or 32 bits"
_ASKED = re.compile(r"AUTOTUNE (\w+)\((\d{1,10}(?:x\d{1,10})*(?:, \d{1,10}(?:x\d{1,10})*)*)\)", re.ASCII)
_STRIDES = re.compile(r"strides: (\[.*\])")
_DTYPES = re.compile(r"dtypes: (torch\.\w+(?:, torch\.\w+)*)")


def is_aiter(header: str) -> bool:
    """Return whether a line is the head of a CSV file of AITER with products or fused MoE layers."""
    return _AITER.match(header) is not None


def read_aiter(name: str, lines: Iterable[str]) -> Iterator[CapturedProduct | Workload | Unseen]:
    """Yield each product or layer once, though the file has it per GPU and type of kernel.

    Layers are those of vLLM. The file's name says whether scales are per block.

    Raises:
        UsageError: a row lacks a size, two columns have one name, or a cell is too long.
    """
    seen = set[object]()
    for number, cells in _rows(lines):
        row = {name: value.strip() for name, value in cells.items()}
        sizes = _MOE_SIZES if "token" in row else _GEMM_SIZES
        if any(not re.fullmatch(r"[1-9][0-9]{0,9}", row.get(size, "")) for size in sizes):
            raise UsageError(f"line {number} is no row of AITER: {', '.join(sizes)} are not integers from 1 on")
        found = _moe(row) if "token" in row else _gemm(name, row)
        if found not in seen:
            seen.add(found)
            if isinstance(found, Problem):
                yield CapturedProduct(found, 1)
            else:
                yield Unseen(*found, 1) if isinstance(found, tuple) else found


def _rows(lines: Iterable[str]) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield the cells of each row by their column, with the number of the line."""
    reader = csv.reader(lines)
    try:
        names = [name.strip() for name in next(reader, [])]
        if twice := [name for at, name in enumerate(names) if name in names[:at]]:
            raise UsageError(f"line 1 names column {twice[0]!r} twice: leave one")
        yield from ((reader.line_num, dict(zip(names, cells, strict=False))) for cells in reader if cells)
    except csv.Error as error:
        raise UsageError(f"line {reader.line_num} is not CSV: {error}") from None


def _gemm(name: str, row: Mapping[str, str]) -> Workload | tuple[str, str]:
    """Return the problem of a row, or its sizes and why it is none; weights are stored by output."""
    m, n, k = (row[size] for size in _GEMM_SIZES)
    if "a8w8_blockscale" in name and "B" not in row:
        return _layer(f"vllm_block_fp8:m{m}:n{n}:k{k}")
    sized = f"{row['B']}x{m}x{n}x{k}" if "B" in row else f"{m}x{n}x{k}"
    types = [row[key] for key in ("dtype", "q_dtype_w", "outdtype") if row.get(key)]
    types = types or (["torch.bfloat16"] if name.startswith("bf16") else [])
    if len({*types}) != 1 or types[0] not in _TYPES or row.get("scaleAB") == "True":
        return f"{sized} {'→'.join(dict.fromkeys(types))}".strip(), _NO_ROW
    op = "bmm" if "B" in row else "addmm" if row.get("bias") == "True" else "mm"
    return Problem.parse(f"{sized}:{_TYPES[types[0]]}:nt:{op}")


def _moe(row: Mapping[str, str]) -> Workload | tuple[str, str]:
    """Return the layer of a row, or its text and why it cannot be tuned."""
    token, hidden, inter, experts = (row[size] for size in _MOE_SIZES)
    quantised = row.get("q_type", "QuantType.No")
    is_plain = quantised == "QuantType.No"
    dtype = _TYPES.get(row.get("dtype", "")) if is_plain else _MOE_TYPES.get(quantised)
    layer = f"vllm_moe:m{token}:e{experts}:k{row.get('topk', '')}:h{hidden}:n{inter}"
    if dtype is None or not (is_plain or "float8_e4m3fn" in row.get("q_dtype_w", "")):
        return layer, f"scales {quantised} of {row.get('q_dtype_w', '')} are not among the types of fused MoE layers"
    return _layer(f"{layer}:{dtype}")


def _layer(text: str) -> Workload | tuple[str, str]:
    try:
        return parse_workload(text)
    except ProblemError as error:
        return text, str(error)


def read_flashinfer(fields: object) -> Iterator[CapturedProduct | Unseen]:
    """Yield each product that FlashInfer's autotuner timed, once, though the file has it per runner.

    Sizes of tokens are those that it rounds to. Weights are stored by output, as its documentation asks for.

    Raises:
        UsageError: it is no object, or a key has no shapes of operands.
    """
    if not isinstance(fields, dict):
        raise UsageError("the file is no object of FlashInfer's configs")
    seen = set[object]()
    for key in fields:
        if key.startswith("_"):
            continue
        match = _FLASHINFER.match(key)
        if match is None:
            raise UsageError(f"{key[:80]!r} is no key of FlashInfer: an operation, a runner and its operands' shapes")
        op, *shapes = match[1], *(tuple(map(int, re.findall(r"\d+", text or ""))) for text in match.groups()[1:])
        found = _flashinfer(op, shapes)
        if found not in seen:
            seen.add(found)
            yield CapturedProduct(found, 1) if isinstance(found, Problem) else Unseen(*found, 1)


def _flashinfer(op: str, shapes: Sequence[tuple[int, ...]]) -> Problem | tuple[str, str]:
    """Return the problem of an operation with the shapes of a, b and bias, or its text and why it is none."""
    a, b, bias = shapes
    sized = _shown(op, [*filter(None, (a, b))])
    dtype = _FLASHINFER_TYPES.get(op)
    if dtype is None:
        return sized, _NO_ROW
    is_batched = len(a) == 3
    if not _fit("bmm" if is_batched else "mm", [a, b]):
        return sized, f"these are no operands of {op}"
    name = "bmm" if is_batched else "addmm" if bias == b[-1:] else "mm"
    try:
        return Problem.parse(f"{'x'.join(map(str, (*a[:-1], b[-1], a[-1])))}:{dtype}:nt:{name}")
    except ProblemError as error:
        return sized, str(error)


def read_autotune(lines: Iterable[tuple[int, str]]) -> Iterator[CapturedProduct | Unseen]:
    """Yield each product that Inductor made choices for, at its first sizes; raises UsageError if there is none."""
    asked: tuple[str, list[list[int]]] | None = None
    strides, found = "", False
    for _, line in lines:
        if match := _ASKED.search(line):
            if asked:
                yield _untyped(*asked)
            sizes = [[int(size) for size in part.split("x")] for part in match[2].split(", ")]
            asked, strides, found = (match[1], sizes), "", True
        elif match := _STRIDES.search(line):
            strides = match[1]
        elif asked and (match := _DTYPES.search(line)):
            yield _autotuned(*asked, strides, match[1].split(", "))
            asked = None
    if asked:
        yield _untyped(*asked)
    if not found:
        raise UsageError("no line begins with AUTOTUNE: compile with TORCHINDUCTOR_MAX_AUTOTUNE_GEMM=1")


def _untyped(op: str, sizes: Sequence[Sequence[int]]) -> Unseen:
    return Unseen(_shown(op, sizes), "the log names no types and strides, as that of an older torch", 1)


def _autotuned(op: str, sizes: Sequence[Sequence[int]], text: str, dtypes: Sequence[str]) -> CapturedProduct | Unseen:
    if op not in _OPS or len({*dtypes}) > 1 or dtypes[0] not in _TYPES:
        return Unseen(f"{_shown(op, sizes)} {', '.join(dict.fromkeys(dtypes))}", _NO_ROW, 1)
    strides = [re.findall(r"[^,\s]+", each) for each in re.findall(r"\[([^\]]*)\]", text)]
    if [*map(len, strides)] != [*map(len, sizes)] or not all(x.isdecimal() for each in strides for x in each):
        return Unseen(_shown(op, sizes), f"its strides, {text}, are open", 1)
    if not _fit(op, sizes):
        return Unseen(_shown(op, sizes), f"these are no operands of {op}", 1)
    problem = None
    with suppress(ProblemError, IndexError, ValueError):
        problem = _problem(op, _TYPES[dtypes[0]], sizes, [[*map(int, each)] for each in strides])
    if problem is None:
        return Unseen(_shown(op, sizes), f"an operand of strides {text} is neither row-major nor transposed", 1)
    return CapturedProduct(problem, 1)


def _fit(op: str, sizes: Sequence[Sequence[int]]) -> bool:
    """Return whether an operation takes operands of these sizes, its bias first."""
    ranks = 3 if op.endswith("bmm") else 2
    a, b = sizes[-2:] if len(sizes) == 2 + (op in ("addmm", "baddbmm")) else ((), ())
    return len(a) == len(b) == ranks and a[-1] == b[-2] and a[:-2] == b[:-2]


def _problem(op: str, dtype: str, sizes: Sequence[Sequence[int]], strides: Sequence[Sequence[int]]) -> Problem | None:
    """Return the problem of an operation's operands; None where an operand has no layout that a row may have."""
    (*batch, m, k), (*_, n) = sizes[-2:]
    layouts, stated = "", dict[str, float | None]()
    for name, size, stride in zip("ab", sizes[-2:], strides[-2:], strict=True):
        layout, lead = layout_of(size, stride)
        if not layout:
            return None
        layouts += layout
        step = stride[0] if batch else None
        found = unusual_strides(layout, size[-2], size[-1], lead, batch[0] if batch else 1, step)
        stated[f"ld{name}"], stated[f"batch_stride_{name}"] = found
    texts = stated_texts(stated)
    if len(sizes) > 2:
        if not (bias := bias_of(sizes[0], strides[0], (m, n, *(batch or [1])))):
            return None
        texts.insert(0, f"bias={bias}")
    sized = "x".join(map(str, [*batch, m, n, k]))
    return Problem.parse(":".join([sized, dtype, layouts, op, *texts]))


def _shown(op: str, sizes: Sequence[Sequence[int]]) -> str:
    return f"{op}({', '.join('x'.join(map(str, size)) for size in sizes)})"
