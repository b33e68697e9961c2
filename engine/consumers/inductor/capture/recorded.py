"""Captures from files: of `gemmtune_inductor.record`, of PyTorch's TunableOp, and of other tools."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.consumers.inductor.capture.captured import BUDGET, Captured, CapturedProduct, Unseen, merged
from gemmtune.engine.consumers.inductor.capture.foreign import is_aiter, read_aiter, read_autotune, read_flashinfer
from gemmtune.engine.io.reading import parse_json, read_text
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.workload import Workload, summed
from gemmtune.engine.tables.loss_limits import RangeLimits

RECORD_SUFFIXES = (".jsonl", ".csv", ".log", ".json")
"""Suffixes of the files that `read_recorded` reads."""

_TUNABLE_TYPES = {"BFloat16": "bf16", "Half": "fp16", "float": "fp32", "tf32": "tf32"}
_TUNABLE_OPS = {"GemmTunableOp": "mm", "GemmStridedBatchedTunableOp": "bmm", "GemmAndBiasTunableOp": "addmm"}
_EMPTY = re.compile(r"([0-9]+x)*0+(x[0-9]+)*(:.*)?")
"""Name of a product with a size of 0, as `record` of gemmtune 0.1.0 wrote it."""
_NO_ROW = "tables have rows of mm, addmm, bmm and baddbmm with one type of 16 or 32 bits"
_WHOLE = re.compile(r"^Validator,|_ld_[0-9]+_[0-9]+_[0-9]+|,[^,]+,[0-9.e-]+$")
"""Line of TunableOp that nothing was cut from, though it has no newline."""


def read_recorded(*paths: Path) -> Captured:
    """Read the products of a recorded program.

    Args:
        paths: files of `gemmtune_inductor.record` (.jsonl), of TunableOp with PYTORCH_TUNABLEOP_RECORD_UNTUNED=1
            (tunableop_untuned0.csv), AITER's lists (.csv), FlashInfer's configs (.json), or logs of Inductor (.log):
            one per process. The runs of equal products add up.

    Raises:
        UsageError: a file cannot be read, or a line is malformed.
    """
    parts: list[CapturedProduct | Workload | Unseen] = []
    sources = []
    for path in paths:
        text = read_text(path, "record")
        lines = list(enumerate(text.splitlines(keepends=True), 1))
        try:
            if path.suffix == ".json":
                parts += read_flashinfer(parse_json(text, "the file"))
                who = "FlashInfer tuned"
            elif path.suffix == ".log":
                parts += read_autotune(lines)
                who = "Inductor autotuned, from its log"
            elif path.suffix == ".csv" and lines and is_aiter(lines[0][1]):
                parts += read_aiter(path.name, (line for _, line in lines))
                who = "AITER lists"
            elif path.suffix == ".csv":
                parts += _tunable(lines)
                who = "TunableOp recorded"
            else:
                parts += _lowered(lines)
                who = "a program compiled, recorded"
        except UsageError as error:
            raise UsageError(f"record {path}: {error}") from None
        sources.append(f"Products that {who} in {path.name}.")
    products = [each for each in parts if isinstance(each, CapturedProduct)]
    unseen = [each for each in parts if isinstance(each, Unseen)]
    layers = summed(each for each in parts if isinstance(each, Workload))
    return Captured(*merged(products, unseen), " ".join(sources), layers=layers)


def recorded_plan(path: Path) -> Plan:
    """Return the plan that `Captured.to_toml` writes down, made of the records: no text of theirs is read as TOML.

    Raises:
        UsageError: the file cannot be read, or a line is malformed.
    """
    recorded = read_recorded(path)
    try:
        ranges = RangeLimits() if recorded.has_open_sizes else None
        return Plan(problems=recorded.problems, budget=BUDGET, ranges=ranges)
    except UsageError as error:
        raise UsageError(f"record {path}: {error}") from None


def _lowered(lines: Iterable[tuple[int, str]]) -> Iterator[CapturedProduct | Unseen]:
    """Yield the products of a recording, each as often as its graph ran; once if the graph's runs were not counted."""
    entries: list[tuple[tuple[str, int], CapturedProduct | Unseen]] = []
    runs: Counter[tuple[str, int]] = Counter()
    for number, line in lines:
        fields = _fields(number, line)
        if fields is None:
            yield _torn(number)
            continue
        try:
            graph = (str(fields.get("process")), _integer(fields, "graph") if "graph" in fields else 0)
            match fields.get("type"):
                case "product":
                    entries.append((graph, _product(fields)))
                case "unseen":
                    names = _text(fields, "operation"), _text(fields, "reason")
                    entries.append((graph, Unseen(*names, _integer(fields, "count"))))
                case "runs":
                    runs[graph] = max(runs[graph], _integer(fields, "runs"))
                case "start":
                    continue
                case kind:
                    raise UsageError(f"type {str(kind)[:50]!r} is not one of start, product, unseen, runs")
        except (UsageError, ValueError) as error:
            raise UsageError(f"line {number}: {error}") from None
    for graph, entry in entries:
        times = max(1, runs[graph])
        if isinstance(entry, Unseen):
            yield Unseen(entry.operation, entry.reason, entry.count * times)
        else:
            chains = tuple((chain, times) for chain, _ in entry.epilogues)
            yield CapturedProduct(entry.problem, times, entry.m, entry.first, entry.last, entry.step, chains)


def _fields(number: int, line: str) -> Mapping[str, object] | None:
    """Return the JSON object of a line; None for a last line that is cut off."""
    try:
        fields = parse_json(line, f"line {number}")
    except UsageError:
        if line.endswith("\n"):
            raise
        return None
    if not isinstance(fields, dict):
        raise UsageError(f"line {number} is no JSON object")
    return fields


def _product(fields: Mapping[str, object]) -> CapturedProduct | Unseen:
    """Return a recorded product; one with a size of 0 is no problem.

    Raises:
        UsageError: a field is malformed.
        ValueError: its epilogue is.
    """
    name, chain = _text(fields, "problem"), _text(fields, "epilogue")
    if _EMPTY.fullmatch(name):
        return Unseen(name, "the product is empty", 1)
    problem = Problem.parse(name)
    product = CapturedProduct(problem, 1, epilogues=((chain, 1.0),) if chain else ())
    if problem.dynamic_m:
        last = None if fields.get("last") is None else _integer(fields, "last")
        sizes = max(2, _integer(fields, "first")), last, _integer(fields, "step")
        product = CapturedProduct(problem, 1, _text(fields, "m"), *sizes, product.epilogues)
    product.variants  # noqa: B018 (raises)
    return product


def _tunable(lines: Iterable[tuple[int, str]]) -> Iterator[CapturedProduct | Unseen]:
    """Yield the products of TunableOp's file, whose sizes are those of BLAS: columns first, so n comes before m."""
    for number, line in lines:
        signature, comma, sizes = line.strip().partition(",")
        if not signature or signature == "Validator":
            continue
        parts = sizes.split(",")[0].split("_")
        if not line.endswith("\n") and not _WHOLE.search(line):
            yield _torn(number)
            continue
        if not comma or len(parts) < 4 or parts[0] not in ("nn", "nt", "tn", "tt"):
            raise UsageError(f"line {number} is no untuned GEMM: expected OP_TYPE_LAYOUT,layout_n_m_k_ld_..")
        operation, _, kind = signature.partition("_")
        op, dtype = _TUNABLE_OPS.get(operation), _TUNABLE_TYPES.get(kind.rpartition("_")[0])
        if op is None or dtype is None:
            yield Unseen(signature, _NO_ROW, 1)
            continue
        try:
            n, m, k = map(int, parts[1:4])
            batch = int(parts[5]) if op == "bmm" else 1
            has_leads = len(parts) > (6 if op == "bmm" else 4)
            leads = map(int, parts[parts.index("ld") + 1 :][:3]) if has_leads else (*_dense(parts[0], n, m, k), 0)
            b_lead, a_lead, _ = leads
        except (ValueError, IndexError):
            raise UsageError(f"line {number}: {sizes.strip()[:80]!r} has no sizes and leading dimensions") from None
        b_layout, a_layout = parts[0][0], parts[0][1]
        suffix = "" if op == "mm" else f":{op}"
        if (b_lead, a_lead) != _dense(parts[0], n, m, k):
            if op == "bmm":
                yield Unseen(signature, f"the file names no batch strides, in a product of {batch}x{m}x{n}x{k}", 1)
                continue
            suffix += f":lda={a_lead}:ldb={b_lead}"
        prefix = f"{batch}x" if op == "bmm" else ""
        yield CapturedProduct(Problem.parse(f"{prefix}{m}x{n}x{k}:{dtype}:{a_layout}{b_layout}{suffix}"), 1)


def _torn(number: int) -> Unseen:
    """Return what a last line without its end stands for."""
    return Unseen(f"line {number}", "cut off: a program writes it now, or was stopped as it did", 1)


def _dense(layout: str, n: int, m: int, k: int) -> tuple[int, int]:
    """Return the leading dimensions of operands without gaps, which torch before 2.6 does not write."""
    return k if layout[0] == "t" else n, m if layout[1] == "t" else k


def _integer(fields: Mapping[str, object], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UsageError(f"{name}={str(value)[:50]} is not an integer from 1 on")
    return value


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise UsageError(f"{name}={str(value)[:50]} is no text")
    return value
