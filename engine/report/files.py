"""Reports of every file that gemmtune writes: `gemmtune show`."""

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from gemmtune.engine.io.paths import FileKind, find, json_kind, kind_of_file
from gemmtune.engine.io.reading import parse_json, read_text
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import TableError, UsageError
from gemmtune.engine.records.landscape import Landscape
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.report.database import database_report
from gemmtune.engine.report.layout import Grid, Report, count, microseconds, params_text, tally
from gemmtune.engine.report.progress.run import RUN_FILE, Run, read_run
from gemmtune.engine.report.progress.state import duration
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.landscapes.landscape_file import find_landscapes, read_landscapes
from gemmtune.engine.tables.sealed import read_sealed
from gemmtune.engine.tables.table_file import read_table

FileReport = Callable[[Path, Mapping[str, Any]], Report]
"""Report of a file, of its path and its fields."""

_T = TypeVar("_T")
_SHOWN = (
    FileKind.TABLE,
    FileKind.DATABASE,
    FileKind.LANDSCAPES,
    FileKind.INDUCTOR,
    FileKind.CUTE,
    FileKind.LOOKUP,
    FileKind.COMPARISON,
    FileKind.RUN,
    FileKind.BENCH,
)


def file_report(source: str, further: Mapping[FileKind, FileReport] = MappingProxyType({})) -> Report:
    """Report a table, a run, a comparison, landscapes, a campaign's folder or a database; or a file of a consumer.

    Args:
        source: path, or the URL of a database.
        further: reports of the files that consumers know, by their kind.

    Raises:
        LandscapeError: the file of landscapes is malformed.
        StoreError: the database cannot be read.
        TableError: the table is damaged.
        UsageError: the path names nothing that can be shown.
    """
    found = find(source, *_SHOWN)
    path = Path(found)
    if is_database(found):
        with Database.open(found, read_only=True) as store:
            return database_report(store)
    if not path.is_file() or kind_of_file(path) is FileKind.LANDSCAPES:
        return _landscapes_report(find_landscapes(found))
    return _json_report(path, further)


def is_database(source: str) -> bool:
    """Return whether a path or URL means a database: a file of no other kind that `gemmtune show` knows."""
    if "://" in source:
        return True
    path = Path(find(source, *_SHOWN))
    kind = kind_of_file(path)
    return kind is FileKind.DATABASE or (kind is None and path.is_file() and path.suffix != ".json")


def _json_report(path: Path, further: Mapping[FileKind, FileReport]) -> Report:
    record = parse_json(read_text(path, "file", TableError), str(path), TableError)
    fields: Mapping[str, Any] = record if isinstance(record, dict) else {}
    match json_kind(fields):
        case FileKind.TRITON | FileKind.INDUCTOR | FileKind.CUTE if "bundle" in fields:
            return _checked_report(path, _bundle_report, fields)
        case kind if kind is not None and kind in further:
            return _checked_report(path, further[kind], fields)
        case FileKind.COMPARISON:
            return _checked_report(path, _comparison_report, fields)
        case FileKind.RUN if path.name == RUN_FILE and (found := read_run(path.parent)) is not None:
            return Report(fields, [_run_text(found)])
        case FileKind.LANDSCAPES:
            return _landscapes_report(read_landscapes(path))
    from gemmtune.engine.report.tables import table_report  # imports NumPy, which a database needs not

    table, writer = read_table(path), fields.get("gemmtune", "of an unknown version")
    return table_report(table, [f"written by gemmtune {writer}", *_run_notes(path.parent)])


def _checked_report(path: Path, report: FileReport, record: Mapping[str, Any]) -> Report:
    """Return the report of a file, which may carry no hash of its content."""
    try:
        return report(path, record)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise TableError(f"{path} is damaged, or no file of gemmtune: {type(error).__name__}: {error}") from None


def read_exported(path: Path, parse: Callable[..., _T]) -> _T:
    """Return what a consumer's reader makes of an exported file.

    Raises:
        TableError: the file cannot be read, or its content is not what its hash says.
    """
    try:
        return read_sealed(path, parse)
    except (OSError, TypeError, ValueError) as error:
        raise TableError(str(error)) from None


def _run_notes(folder: Path) -> list[str]:
    """Return what the record in a campaign's folder says, or why it cannot be read; nothing for none."""
    try:
        run = read_run(folder)
    except UsageError as error:
        return [str(error)]
    return [] if run is None else [_run_text(run)]


def _run_text(run: Run) -> str:
    made = f"{count(run.evaluations, 'evaluation')}{f', {run.known} known before' if run.known else ''}"
    cost = "" if run.cost is None else f", cost {run.cost:.2f}"
    return f"tuned {run.started_at} in {duration(run.seconds)}, {made}{cost}\n{run.command}"


def _bundle_report(_path: Path, record: Mapping[str, Any]) -> Report:
    tables = record["tables"].items()
    columns = {
        "GPU": [gpu for gpu, _ in tables],
        "objective": [table["objective"] for _, table in tables],
        "table": [table["table_sha256"] for _, table in tables],
        "gemmtune": [table["gemmtune"] for _, table in tables],
    }
    return Report(record, [f"{count(len(tables), 'table')}, of one GPU each", Grid(columns, tuple(columns))])


def _comparison_report(_path: Path, record: Mapping[str, Any]) -> Report:
    curves = record["curves"]
    scored = len(record["landscapes"]) - len({x["landscape"] for x in curves if x["landscape"] and x["score"] is None})
    columns = {
        "sampler": [curve["arm"] for curve in curves],
        "landscape": [curve["landscape"] or "all" for curve in curves],
        "of optimum": [f"{curve['fraction_of_optimum'][-1]:.4f}" for curve in curves],
        "P": [_score(curve, scored, len(record["landscapes"])) for curve in curves],
    }
    terms = f"{count(len(record['landscapes']), 'landscape')}, budget {record['budget']}"
    head = f"{terms}, {count(record['seeds'], 'seed')}; report.html beside the file has the curves"
    return Report(record, [head, Grid(columns, ("sampler", "landscape"))])


def _score(curve: Mapping[str, Any], known: int, landscapes: int) -> str:
    from gemmtune.engine.report.studies import of_landscapes  # imports NumPy

    of = "" if curve["landscape"] else of_landscapes(known, landscapes)
    return "-" if curve["score"] is None else f"{curve['score']['value']:.2f}{of}"


def _landscapes_report(found: tuple[Landscape, ...]) -> Report:
    lines, facts = [], []
    for each in found:
        failures = Counter(point.status.value for point in each.points.values() if point.status is not Status.OK)
        timed = [(point.time_ns, point.config) for point in each.points.values() if point.time_ns is not None]
        best_ns, config = min(timed, key=lambda pair: pair[0], default=(None, Config({})))
        near = sum(best_ns is not None and time_ns <= best_ns * 1.02 for time_ns, _ in timed)
        cells = [str(len(each.points)), microseconds(best_ns), str(near), tally(failures) or "-", params_text(config)]
        lines.append([each.name, each.context.get("space", "-"), *cells])
        facts.append({
            "problem": each.name,
            "context": dict(each.context),
            "configs": len(each.points),
            "best_ns": best_ns,
            "best_config": config,
            "within_2_percent": near,
            "failures": failures,
        })  # fmt: skip
    made = {name: sorted({each.context[name] for each in found if name in each.context}) for name in ("device", "date")}
    title = "; ".join([count(len(found), "landscape"), *(", ".join(values) for values in made.values() if values)])
    headers = ("problem", "space", "configs", "best µs", "within 2 %", "failed", "best config")
    grid = Grid.of_rows(headers, lines, ("problem", "space", "failed", "best config"))
    cut = [f"{each.name}: {each.context['cut']}" for each in found if "cut" in each.context]
    return Report({"landscapes": facts}, [title, grid, *cut])
