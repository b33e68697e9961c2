"""Exporter for PyTorch Inductor: all rows with their loader, and the rows that stock Inductor can read.

`lookup_table.json` holds what the stock `torch._inductor.lookup_table.LookupTableChoices` reads, see `lookup`. A
batch-invariant table has none: stock Inductor runs ATen at every m without a row.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gemmtune.engine.consumers.inductor.loader.export import loader_files
from gemmtune.engine.consumers.inductor.loader.loader_rows import PACKAGES, SCHEMA, parse_inductor_table
from gemmtune.engine.consumers.inductor.loader.lookup import lookup_table
from gemmtune.engine.consumers.inductor.loader.one_order import other_kind
from gemmtune.engine.consumers.inductor.loader.templates import Product, is_cute, multiplied, template_of
from gemmtune.engine.consumers.inductor.next_choice import runnable, runs
from gemmtune.engine.consumers.inductor.one_per_key import one_per_key
from gemmtune.engine.consumers.inductor.written import parse_written_table
from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.config import Config, Value
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.epilogue.chain import NO_EPILOGUE, stored
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.flex.attention import Flex
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.gemm.terms import Accumulation, DType, Op, implied_types
from gemmtune.engine.records.grouped.product import Form, Grouped
from gemmtune.engine.records.table import Choice, GeneratedRow, Row, Table
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.report.layout import count
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.exporter import Exporter
from gemmtune.engine.tables.export import SEALED, sealed_json, served
from gemmtune.engine.tables.kernels.builds import Built, built_kernels, cute_entry
from gemmtune.engine.tables.licence import LICENCES, notices
from gemmtune.engine.tables.table_file import table_sha256
from gemmtune.engine.toolchain.releases import source_hash
from gemmtune.engine.toolchain.vendor_gemm import is_of_dense_types, operator_name

_MOST_ACCUMULATORS = 64  # per thread, of 255 registers


class InductorExporter(Exporter):
    """Export `inductor_table.json`, its loader, and `lookup_table.json` for stock Inductor.

    Beside a table with binaries, `NOTICE` has the licences of what was compiled into them.
    """

    workloads = (Problem.kind, Grouped.kind, Flex.kind)

    def export(self, table: Table) -> Mapping[str, str]:
        """Export the first choice of every row that Inductor can run, and the choice of every range.

        `left_out` counts the rows and ranges whose first choice Inductor cannot run, or none, by space.

        Returns:
            The text of each file, by name.

        Raises:
            TableError: Inductor runs none of the rows and ranges, or has one key for two rows. Or a config is not of
                its space, or a CuTe kernel does not build here.
        """
        whole, (table, left_out) = table, runnable(one_per_key(table)[0], product_key)
        for problem, choice in _choices(table):  # before anything is built
            product_key(problem), template_of(problem, choice)
        kernels = built_kernels(
            ((_task(table, *each), each[1].config) for each in _choices(table) if is_cute(each[1].space)), _kernel_entry
        )
        rows, made_with = _rows(table, kernels), _made_with(table)
        if table.batch_invariant:
            _fuse_alike(rows)
        content = {
            "made_with": made_with,
            "templates": _templates(rows, made_with.get("torch", [])),
            "params": _params(table),
            "rows": rows,
            "kernels": dict(sorted(kernels.values())),
            **_generated(table),
            **({"batch_invariant": True} if table.batch_invariant else {}),
            **({"left_out": {space: len(names) for space, names in left_out.items()}} if left_out else {}),
        }
        sealed = sealed_json(whole, SCHEMA, content, parse_written_table)
        compiled = {package for task, _ in kernels for package in registry.space(task.space).compiled_packages}
        stock = json.dumps(lookup_table(table), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        return {
            **({} if table.batch_invariant else {"lookup_table.json": stock}),
            "inductor_table.json": sealed,
            **loader_files(parse_inductor_table(sealed.encode())),
            **({LICENCES: notices(compiled)} if kernels else {}),
        }

    def left_out(self, table: Table) -> str:
        """Return a line that names rows and ranges whose choice Inductor cannot run, or that became one; or none."""
        table, joined = one_per_key(table)
        found = runnable(table, product_key)[1].items()
        lines = [f"{count(len(its), 'choice')} of {space} left out: {', '.join(its)}" for space, its in found]
        said = f"what differs in a mask's values or its routing alone has one config: {', '.join(joined)}"
        return "; ".join([*lines, *([said] if joined else [])])

    def shared(self, exports: Sequence[Mapping[str, str]]) -> Mapping[str, str]:
        """Return the loader with the parts that the rows of any GPU need."""
        return loader_files(*(parse_inductor_table(files["inductor_table.json"].encode()) for files in exports))


def with_generated(exported: str, table: Table, rows: Sequence[GeneratedRow]) -> Mapping[str, str]:
    """Return the files of a table's export to which rows of generated kernels come; no kernel is built again.

    Args:
        exported: text of `inductor_table.json`.
        table: the table that was exported.
        rows: the rows that come to it.

    Raises:
        TableError: the text is no export of this table, or has those of several GPUs.
    """
    fields = json.loads(exported)
    table = served(InductorExporter(), table)
    if fields.get("table_sha256") != table_sha256(table):
        raise TableError("inductor_table.json is not of this table alone: export it again, with gemmtune export")
    extended = table.with_generated(rows)
    content = {name: its for name, its in fields.items() if name not in SEALED} | _generated(extended)
    sealed = sealed_json(extended, SCHEMA, content, parse_written_table)
    return {"inductor_table.json": sealed, **loader_files(parse_inductor_table(sealed.encode()))}


def product_key(problem: Product) -> str:
    """Return the loader's key of all products that differ in m alone: `mm:bfloat16:nt:1x4096x4096:none:static`.

    Scalars and strides that are unusual stand behind it, and then the text of an epilogue. A grouped product's has all
    sizes but the range size: `grouped_rows:bfloat16:nt:8x1408x2048:none:static`. That of attention is its name, with 1
    for a dynamic length.

    Raises:
        TableError: the problem is no product that Inductor compiles.
    """
    if isinstance(problem, Flex):
        return problem.kernel_name
    if isinstance(problem, Grouped):
        if problem.form is Form.BATCHED or problem.dtype not in (DType.BF16, DType.E4M3):
            raise TableError(f"{problem.name}: Inductor's rows are of groups of rows or of k, in bf16 or e4m3")
        rest = problem.m if problem.form is Form.INNER else problem.k
        sizes = f"{problem.groups}x{problem.n}x{rest}"
        dtype = problem.dtype.value if problem.epilogue else problem.dtype.torch_name
        dtype += f"_{problem.accumulation}" * (problem.accumulation is Accumulation.EXACT)
        return f"grouped_{problem.form}:{dtype}:{problem.layout}:{sizes}:none:static"
    _check_problem(problem)
    operation, dtype = _operation_and_types(problem)
    layout, sizes = f"{problem.a_layout}{problem.b_layout}", f"{problem.batch}x{problem.n}x{problem.k}"
    kind = "dynamic" if problem.dynamic_m else "static"
    epilogue = [str(problem.epilogue)] if problem.epilogue else []
    return ":".join((operation, dtype, layout, sizes, problem.bias.value, kind, *problem.stated, *epilogue))


def _operation_and_types(problem: Problem) -> tuple[str, str]:
    """Return Inductor's name of the operation, and the types of its operands and of an unusual output.

    8-bit operands have short names, behind which stand another type of B, and that sums are exact.
    """
    if problem.a_dtype.itemsize > 1:
        dtype = "tf32" if problem.allow_tf32 else problem.a_dtype.torch_name
        is_usual, facts = problem.out_dtype is problem.a_dtype, []
    else:
        dtype = problem.a_dtype.value
        is_usual = problem.out_dtype is implied_types(problem.a_dtype)[0]
        facts = [] if problem.b_dtype is problem.a_dtype else [problem.b_dtype.value]
        facts += [] if problem.accumulation is Accumulation.FAST else [problem.accumulation.value]
    operation = problem.op.value if problem.a_dtype.itemsize > 1 else operator_name(problem).removeprefix("aten::_")
    return operation, "_".join([dtype, *([] if is_usual else [problem.out_dtype.torch_name]), *facts])


def _check_problem(problem: Problem) -> None:
    if problem.a_dtype.itemsize == 1:
        if problem.a_dtype.is_float8 and problem.scaling is None:
            raise TableError(f"{problem.name}: Inductor's scaled_mm has both scales: mul(column[fp32]).mul(row[fp32])")
        if problem.op is Op.MM and problem.acc_dtype is implied_types(problem.a_dtype)[1]:
            return
    dtypes = {problem.a_dtype, problem.b_dtype, problem.out_dtype}
    if not is_of_dense_types(problem):
        raise TableError(f"{problem.name}: Inductor's {problem.op} has one dtype, not {', '.join(sorted(dtypes))}")
    if problem.acc_dtype is not DType.FP32:
        raise TableError(f"{problem.name}: Inductor's {problem.op} accumulates in fp32, not in {problem.acc_dtype}")


def _rows(table: Table, kernels: Mapping[tuple[Task, Config], Built]) -> dict[str, list[dict[str, Any]]]:
    """Return rows by product: ranges for a dynamic m or length, rows and ranges for a static one.

    A range of one static m is left out, for that m has a row. Ranges of a dynamic m never serve one m.
    """
    found: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in table.rows:
        problem = multiplied(row.problem)
        key, facts = product_key(problem), {"regret_bound": row.regret_bound, "loss": row.loss}
        entry = _entry(table.device, problem, row.choices[0], problem.size, problem.size, facts)
        if is_cute(row.choices[0].space):
            entry |= _kernel(table, problem, row.choices[0], _next_choice(row), kernels)
        if isinstance(problem, Grouped) or not problem.takes_size_at_launch:
            found[key].append(entry)
    for ranged in table.ranges:
        if ranged.first == ranged.last:
            continue
        losses = {name: {str(m): loss for m, loss in getattr(ranged, name)} for name in ("tuned", "probed", "held_out")}
        problem = multiplied(ranged.problem)
        entry = _entry(table.device, problem, ranged.choice, ranged.first, ranged.last, losses)
        if is_cute(ranged.choice.space):
            entry |= _kernel(table, problem, ranged.choice, _vendor(problem, ranged.choice), kernels)
        key = product_key(problem)
        found[f"{key.removesuffix('static')}dynamic" if isinstance(problem, Grouped) else key].append(entry)
    return dict(found)


def _generated(table: Table) -> dict[str, object]:
    """Return the rows of the kernels between the products; none where a table has none, or is batch-invariant."""
    if not table.generated or table.batch_invariant:
        return {}
    found = {}
    for row in table.generated:
        facts = {
            "time_ns": row.choice.time_ns,
            "default_ns": row.default_ns,
            "protocol": row.choice.protocol,
            "toolchain": row.choice.toolchain,
        }
        found[row.source] = {"name": row.name, "config": dict(row.choice.config), "facts": facts}
    return {"generated": found}


def _fuse_alike(rows: Mapping[str, list[dict[str, Any]]]) -> None:
    """Let all rows of a product fuse a cheap epilogue, or none: what is fused is rounded once less."""
    fusing = {
        key: all(row["fuses_cheap"] for row in (*its, *rows.get(other_kind(key), ()))) for key, its in rows.items()
    }
    for key, its in rows.items():
        its[:] = [{**row, "fuses_cheap": fusing[key]} for row in its]


def _kernel_entry(task: Task, artifact: Artifact, binary: bytes) -> Built | str:
    """Return a kernel's name and entry, with its epilogue as the loader restores it."""
    problem = multiplied(task.problem)
    return cute_entry(task, artifact, binary, stored(problem.epilogue if isinstance(problem, Problem) else NO_EPILOGUE))


def _entry(
    device: Device, problem: Product, choice: Choice, first: int, last: int, facts: Mapping[str, object]
) -> dict[str, Any]:
    return {
        "first": first,
        "last": last,
        "template": template_of(problem, choice),
        "kwargs": dict(choice.config),
        "fuses_cheap": isinstance(problem, Problem) and _fuses_cheap(device, problem, choice),
        "kernel": None,
        "otherwise": None,
        "facts": {
            "problem": problem.name,
            "time_ns": choice.time_ns,
            "evidence": choice.evidence.value,
            "protocol": choice.protocol,
            "toolchain": choice.toolchain,
            **facts,
        },
    }


def _kernel(
    table: Table, problem: Product, choice: Choice, instead: Choice, kernels: Mapping[tuple[Task, Config], Built]
) -> dict[str, object]:
    """Return the fields of an entry whose kernel is a CuTe one, with the choice that runs where it cannot."""
    name, _ = kernels[_task(table, problem, choice), choice.config]
    return {"kernel": name, "otherwise": {"template": template_of(problem, instead), "kwargs": dict(instead.config)}}


def _next_choice(row: Row) -> Choice:
    """Return the row's fastest choice that needs torch alone; the vendor library's if none is faster."""
    vendor = row.baseline or _vendor(row.problem, row.choices[0])
    others: list[Choice] = []
    if isinstance(problem := row.problem, Problem):
        others = [each for each in row.choices if runs(problem, each) and not is_cute(each.space)]
    best = min(others, key=lambda choice: choice.time_ns, default=vendor)
    return vendor if row.baseline is not None and best.time_ns > vendor.time_ns else best


def _vendor(problem: Workload, choice: Choice) -> Choice:
    return replace(choice, space=problem.baseline_space, config=Config({}))


def _task(table: Table, problem: Product, choice: Choice) -> Task:
    return Task(problem, table.device, choice.space)


def _fuses_cheap(device: Device, problem: Problem, choice: Choice) -> bool:
    """Return whether a plain product's kernel has room for a cheap epilogue that it was not timed with.

    An epilogue holds its operands beside the accumulators, so these may take a quarter of a thread's registers. And it
    may pass the tile through shared memory in fp32, while the tiles of A and B are there, too.
    """
    names = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_stages", "num_warps")
    values = [value for value in map(choice.config.get, names) if type(value) is int]
    if problem.epilogue or len(values) < len(names):  # ATen and CuTe have no such params; the loader refuses other gaps
        return False
    block_m, block_n, block_k, num_stages, num_warps = values
    tiles = (block_m + block_n) * block_k * problem.a_dtype.itemsize * num_stages
    fits = block_m * block_n <= _MOST_ACCUMULATORS * num_warps * device.warp_size
    return fits and tiles + 4 * block_m * block_n <= device.shared_memory_per_block_bytes


def _made_with(table: Table) -> dict[str, list[str]]:
    """Return the versions that timed the rows, for each package that Inductor's kernels depend on."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for _, choice in _choices(table):
        for package, its in Toolchain.parse(choice.toolchain).versions:
            if package in PACKAGES:
                found[package].add(its)
    return {package: sorted(versions) for package, versions in sorted(found.items())}


def _templates(rows: Mapping[str, list[dict[str, Any]]], torches: Sequence[str]) -> dict[str, list[str]]:
    """Return the hashes of each used template's source in the given versions of torch, if all are known."""
    found = {}
    entries = [entry for of_product in rows.values() for entry in of_product]
    choices = [*entries, *(entry["otherwise"] for entry in entries if entry["otherwise"] is not None)]
    for template in sorted({str(choice["template"]) for choice in choices}):
        hashes = {source_hash(template, torch) for torch in torches}
        if hashes and None not in hashes:
            found[template] = sorted(h for h in hashes if h is not None)
    return found


def _params(table: Table) -> dict[str, dict[str, Sequence[Value]]]:
    """Return the values that each used template's space has for its params."""
    found: dict[str, dict[str, Sequence[Value]]] = {}
    for problem, choice in (*_choices(table), *_instead(table)):
        template = template_of(problem, choice)
        if template not in found:
            params = registry.space(choice.space).params(Task(problem, table.device, choice.space))
            found[template] = {param.name: list(param.values) for param in params}
    return found


def _instead(table: Table) -> Iterator[tuple[Product, Choice]]:
    """Yield what runs where a CuTe kernel cannot, with its problem."""
    rows = ((multiplied(row.problem), row) for row in table.rows if is_cute(row.choices[0].space))
    yield from ((problem, _next_choice(row)) for problem, row in rows)
    ranges = ((multiplied(row.problem), row.choice) for row in table.ranges if is_cute(row.choice.space))
    yield from ((problem, _vendor(problem, choice)) for problem, choice in ranges)


def _choices(table: Table) -> Iterator[tuple[Product, Choice]]:
    """Yield the choice of every row and range with its problem."""
    yield from ((multiplied(row.problem), row.choices[0]) for row in table.rows)
    yield from ((multiplied(row.problem), row.choice) for row in table.ranges)
