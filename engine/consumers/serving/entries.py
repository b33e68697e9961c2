"""Entries of tuned files, made from a table's rows: one config per key, and what each entry gains."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gemmtune.engine.consumers.serving.contract.file_name import TUNED_TOKENS, Engine, FileName
from gemmtune.engine.consumers.serving.contract.layer import Layer
from gemmtune.engine.consumers.serving.contract.layer_files import engine_of, file_name_of
from gemmtune.engine.consumers.serving.contract.wna16_layer import VllmWna16
from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.table import Choice, RangeRow, Row, Table
from gemmtune.engine.records.workload import Workload


@dataclass(frozen=True, slots=True)
class FileEntry:
    """Config that an engine is to run at one key."""

    tokens: int
    """Key: a token count."""
    config: Config
    """Config of the kernel."""
    gains: tuple[tuple[str, float], ...]
    """Pairs of a layer's name and the lead over what the engine runs there now, as a fraction; may be empty."""
    worst_loss: float
    """Largest slowdown against a layer's own best config, as a fraction, where several layers share the entry."""


@dataclass(frozen=True, slots=True)
class FileEntries:
    """Entries of one file, with what they were measured with."""

    name: FileName
    """Name that the engine looks for."""
    entries: tuple[FileEntry, ...]
    """Entries, token counts ascending."""
    triton: str
    """Version of Triton that the entries were measured with; empty if no row states it."""
    constants: Mapping[str, int]
    """Arguments that each entry states beside its config."""


def entries_by_file(table: Table, engine: Engine, spaces: Sequence[str]) -> list[FileEntries]:
    """Return the entries of every file, sorted by name.

    A layer with ranges gives both ends of each range, so that the nearest key is the range's for every token count.
    Layers that share a file, since its name states neither hidden size nor experts per token, share each entry: the
    config of their rows that loses least where it loses most. Ranges of such layers are not used.

    Raises:
        TableError: a row is of another engine's layer or of a space that the engine does not run.
    """
    files: defaultdict[FileName, list[Row]] = defaultdict(list)
    for row in table.rows:
        files[_name(row.problem, row.choices, table, engine, spaces)].append(row)
    ranges: defaultdict[FileName, list[RangeRow]] = defaultdict(list)
    for range_row in table.ranges:
        ranges[_name(range_row.problem, (range_row.choice,), table, engine, spaces)].append(range_row)
    found = []
    for name, rows in sorted(files.items(), key=lambda item: item[0].text):
        series = {row.problem.series for row in rows}
        entries = _of_ranges(ranges[name], rows) if ranges[name] and len(series) == 1 else _of_rows(rows)
        used = [choice for row in rows for choice in row.choices[:1]] + [each.choice for each in ranges[name]]
        constants = {k: v for row in rows if isinstance(row.problem, Layer) for k, v in row.problem.constants.items()}
        entries = _beside_cuda(entries, [each.problem for each in rows])
        found.append(FileEntries(name, tuple(entries), triton_of(used, name.text), constants))
    return found


def triton_of(choices: Iterable[Choice], file: str) -> str:
    """Return the version of Triton behind choices; empty if they state none, as replayed ones may.

    Raises:
        TableError: they were made with several versions.
    """
    versions = {dict(Toolchain.parse(choice.toolchain).versions).get("triton", "") for choice in choices}
    if len(versions) > 1:
        known = ", ".join(sorted(version or "none" for version in versions))
        raise TableError(f"{file} would mix entries of Triton {known}: measure its rows again with one version")
    return versions.pop().partition("+")[0]


def _name(
    problem: Workload, choices: Sequence[Choice], table: Table, engine: Engine, spaces: Sequence[str]
) -> FileName:
    name = file_name_of(problem, table.device)
    foreign = next((choice.space for choice in choices[:1] if choice.space not in spaces), None)
    if name is None or engine_of(problem) is not engine or foreign is not None:
        space = foreign or choices[0].space
        raise TableError(f"{engine.value} runs no {space} for {problem.name}: it runs {', '.join(spaces)}")
    return name


def _of_rows(rows: Sequence[Row]) -> list[FileEntry]:
    """Return an entry per token count, shared by all layers that have a row there."""
    by_tokens: defaultdict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_tokens[row.problem.size].append(row)
    return [_shared(tokens, of) for tokens, of in sorted(by_tokens.items())]


def _shared(tokens: int, rows: Sequence[Row]) -> FileEntry:
    """Return the entry of the config with the least worst loss among those that every row knows."""
    if len(rows) == 1:
        choice = rows[0].choices[0]
        return FileEntry(tokens, choice.config, _gains([(rows[0], choice)]), 0.0)
    known = [{choice.config: choice for choice in reversed(row.choices)} for row in rows]
    common = [config for config in known[0] if all(config in of for of in known)]
    if not common:
        names = " and ".join(row.problem.name for row in rows)
        raise TableError(f"{names} share a file, and no config was measured for all of them: tune them in one campaign")
    fastest = [min(choice.time_ns for choice in row.choices) for row in rows]

    def worst(config: Config) -> float:
        return max(of[config].time_ns / best for of, best in zip(known, fastest, strict=True)) - 1

    config = min(common, key=lambda each: (worst(each), each.json))
    return FileEntry(
        tokens, config, _gains([(r, of[config]) for r, of in zip(rows, known, strict=True)]), worst(config)
    )


def _of_ranges(ranges: Sequence[RangeRow], rows: Sequence[Row]) -> list[FileEntry]:
    """Return both ends of each range, with the gain of the row that is in it; rows outside all ranges stay alone."""
    entries: dict[int, FileEntry] = {}
    for each in sorted(ranges, key=lambda range_row: range_row.first):
        inside = [row for row in rows if each.first <= row.problem.size <= each.last]
        known = ((row, c) for row in inside for c in row.choices if c.config == each.choice.config)
        gains = _gains(list(known))
        for tokens in (each.first, each.last):
            entries[tokens] = FileEntry(tokens, each.choice.config, gains, each.worst_loss)
    for row in rows:
        if not any(each.first <= row.problem.size <= each.last for each in ranges):
            entries[row.problem.size] = _shared(row.problem.size, [row])
    return [entries[tokens] for tokens in sorted(entries)]


def _beside_cuda(entries: list[FileEntry], layers: Iterable[Workload]) -> list[FileEntry]:
    """Return entries in which vLLM's own defaults stand for token counts that it runs by its kernel in CUDA.

    That kernel takes the tile of the nearest entry, and chooses its own where the entry states none.
    """
    most = min((each.most_in_cuda if isinstance(each, VllmWna16) else 0 for each in layers), default=0)
    counts = {each for each in (*TUNED_TOKENS, most) if 1 <= each <= most}
    rows = ((tokens, min(16, 1 << (tokens - 1).bit_length())) for tokens in sorted(counts))
    own = [FileEntry(tokens, Config({"BLOCK_SIZE_M": each, "GROUP_SIZE_M": 1}), (), 0.0) for tokens, each in rows]
    return [*own, *(each for each in entries if each.tokens > most)]


def _gains(chosen: Sequence[tuple[Row, Choice]]) -> tuple[tuple[str, float], ...]:
    return tuple(
        (row.problem.name, row.baseline.time_ns / choice.time_ns - 1) for row, choice in chosen if row.baseline
    )
