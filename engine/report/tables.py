"""Reports on tables: of one, of the difference between two, of a verification, and of earlier rows."""

from collections import defaultdict
from collections.abc import Sequence, Set
from dataclasses import replace

from gemmtune.engine.campaign.verify import Check, Verified
from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, GeneratedRow, RangeRow, Row, Table
from gemmtune.engine.records.workload import Workload, baseline_name, baseline_words
from gemmtune.engine.report.layout import (
    Grid,
    Report,
    bound,
    choice_text,
    count,
    json_fields,
    lead_text,
    microseconds,
    natural,
    params_text,
)
from gemmtune.engine.report.why import advice, legend, why
from gemmtune.engine.tables.diff import Change, Conflict, TableDiff, terms
from gemmtune.engine.tables.earlier import EarlierRow, Fate
from gemmtune.engine.tables.roofline import speed_columns, speeds

_DIFF_HEADERS = ("change", "problem", "ran", "µs", "runs", "µs now", "shift", "config")
_VERIFY_HEADERS = ("problem", "runs", "µs said", "µs now", "loss", "holds", "config")
_LEFT = ("change", "problem", "run", "ran", "runs", "holds", "evidence", "why", "config")
_NOTHING = ("-", "-")
_MOST_NAMED = 5  # earlier rows that stay, since nothing was measured in their place


def table_report(table: Table, notes: Sequence[str] = ()) -> Report:
    """Report each row of a table: what production should run, why, and how sure that is; below the title, `notes`."""
    rows = sorted(table.rows, key=lambda row: natural(row.problem.name))
    ordered = replace(table, rows=tuple(rows))
    first, reasons = [row.choices[0] for row in rows], [why(row, table.margin) for row in rows]
    baseline = baseline_name(row.problem for row in rows)
    columns = {
        "problem": [row.problem.name for row in rows],
        "run": [choice.space for choice in first],
        "µs": [microseconds(choice.time_ns) for choice in first],
        "95 % interval": [_interval(choice) for choice in first],
        **{name: cells for name, cells in speed_columns(ordered).items() if name == "% of peak"},
        f"{baseline} µs": [microseconds(row.baseline.time_ns if row.baseline else None) for row in rows],
        "lead": [lead_text(row.lead) for row in rows],
        "why": [str(reason) for reason in reasons],
        "ties": [str(len(row.tie_band)) for row in rows],
    }
    if any(row.regret_bound is not None for row in rows):
        columns["regret"] = [bound(row.regret_bound) for row in rows]
    if any(row.loss for row in rows):
        columns["loss"] = [f"{row.loss:.2%}" for row in rows]
    title = f"{table.device.name}: {count(len(rows), 'row')}, objective {table.objective}"
    evidence = [choice.evidence.value for choice in first]
    if len(set(evidence)) > 1:
        columns["evidence"] = evidence
    elif evidence:
        title += f", {evidence[0]}"
    title += f", margin {table.margin:.1%}{f', measured up to {table.measured_at}' if table.measured_at else ''}"
    if versions := made_with(table):
        title += f"\nmade with {versions}"
    advised = [line for row in rows if (line := advice(table.device, row))]
    title = "\n".join([title, *notes, *advised])
    columns["config"] = [choice_text(table.device, row.problem, row.choices[0]) for row in rows]
    interval = ("time_ns", "low_ns", "high_ns", "samples")
    record = {
        "device": table.device.sku,
        "objective": table.objective,
        "margin": table.margin,
        "measured_at": table.measured_at,
        "drivers": list(table.drivers),
        **({"advice": advised} if advised else {}),
        "rows": [
            {
                "problem": row.problem.name,
                "lead": row.lead,
                "why": why(row, table.margin),
                "ties": len(row.tie_band),
                "regret_bound": row.regret_bound,
                "loss": row.loss,
                "choices": [json_fields(c, "space", "config", *interval, "evidence") for c in row.choices],
                "baseline_ns": row.baseline.time_ns if row.baseline else None,
                **{name: getattr(each, name, None) for name in ("tflop_s", "gb_s", "bound", "fraction_of_peak")},
            }
            for row, each in zip(table.rows, speeds(table), strict=True)
        ],
        "ranges": [range_row_json(row) for row in table.ranges],
    }
    further = [_ranges_grid(table)] if table.ranges else []
    if table.generated:
        record["generated"] = [
            {**json_fields(row, "source", "name", "default_ns"), **json_fields(row.choice, "config", *interval)}
            for row in table.generated
        ]
        further.append(_generated_grid(table.generated))
    legends = [
        legend(reasons, baseline_words(row.problem for row in rows)),
        f"lead: of the kernel that ships over {baseline}, or of the fastest one found where {baseline} ships",
        "ties: configs that the times do not tell apart from the fastest",
    ]
    explained = ["\n".join(legends)] if rows else []
    return Report(record, [title, *([Grid(columns, _LEFT)] if rows else []), *explained, *further])


def _generated_grid(rows: Sequence[GeneratedRow]) -> Grid:
    """Return a grid of the kernels between the products, the longest first."""
    ordered = sorted(rows, key=lambda row: (-row.choice.time_ns, row.source))
    columns = {
        "kernel between the products": [row.name for row in ordered],
        "µs": [microseconds(row.choice.time_ns) for row in ordered],
        "default µs": [microseconds(row.default_ns) for row in ordered],
        "config": [params_text(row.choice.config) for row in ordered],
    }
    return Grid(columns, ("kernel between the products", "config"))


def made_with(table: Table) -> str:
    """Return the versions behind the rows that ship, each once, and the drivers: `torch 2.11.0, triton 3.6.0`."""
    found = {pair for row in table.rows for pair in Toolchain.parse(row.choices[0].toolchain).versions}
    versions = [*sorted(found), *(("driver", driver) for driver in table.drivers)]
    return ", ".join(f"{package} {version}" for package, version in versions)


def diff_report(found: TableDiff, device: Device) -> Report:
    """Report each row that differs between two tables of `device`: what ran, what runs, and its config."""

    def line(
        kind: str,
        row: Row | RangeRow,
        before: tuple[str, str] = _NOTHING,
        after: tuple[str, str] = _NOTHING,
        shift: str = "-",
    ) -> list[str]:
        name = range_text(row) if isinstance(row, RangeRow) else row.problem.name
        return [kind, name, *before, *after, shift, choice_text(device, row.problem, first_choice(row))]

    rows = {"added": found.added, "gone": found.gone}
    changes = {"winner": found.winner, "terms": found.terms, "time": found.time}
    ranges = {"ranges_added": found.ranges_added, "ranges_gone": found.ranges_gone}
    lines = [
        *(line("added", row, after=_ran(row)) for row in found.added),
        *(line("gone", row, before=_ran(row)) for row in found.gone),
        *(line(kind, c.after, _ran(c.before), _ran(c.after), _shift(c)) for kind, of in changes.items() for c in of),
        *(line("range added", row, after=_ran(row)) for row in found.ranges_added),
        *(line("range gone", row, before=_ran(row)) for row in found.ranges_gone),
    ]
    record = {
        "same": found.same,
        "batch_invariant": list(found.batch_invariant),
        "generated": list(found.generated),
        **{name: [{"problem": row.problem.name, "choice": _first(row)} for row in of] for name, of in rows.items()},
        **{
            name: [{"problem": c.after.problem.name, "before": _first(c.before), "after": _first(c.after)} for c in of]
            for name, of in changes.items()
        },
        **{name: [range_row_json(row) for row in of] for name, of in ranges.items()},
    }
    which = "first" if found.batch_invariant[0] else "second"
    flags = [f"only the {which} table is batch-invariant"] if len({*found.batch_invariant}) > 1 else []
    flags += [f"kernels between the products differ: {', '.join(found.generated)}"] if found.generated else []
    number = [count(len(lines), "difference")] if lines else []
    grid = [Grid.of_rows(_DIFF_HEADERS, lines, _LEFT)] if lines else []
    return Report(record, ["; ".join([*number, *flags]) or "no difference", *grid])


def merged_tables_report(table: Table, conflicts: Sequence[Conflict]) -> Report:
    """Report a table that was merged of several, and each row for which they had other choices."""
    lines, facts = [], []
    for each in conflicts:
        name = range_text(each.kept) if isinstance(each.kept, RangeRow) else each.kept.problem.name
        texts = [choice_text(table.device, row.problem, first_choice(row)) for row in (each.kept, each.other)]
        lines.append([name, each.source, each.other_source, each.reason, *texts])
        choices = {"kept": _first(each.kept), "other": _first(each.other)}
        facts.append({"problem": name, "from": each.source, "not": each.other_source, "reason": each.reason} | choices)
    title = ", ".join([count(len(table.rows), "row"), count(len(table.ranges), "range"), count(len(lines), "conflict")])
    headers = ("problem", "from", "not from", "because", "kept", "left out")
    record = {"rows": len(table.rows), "ranges": len(table.ranges), "conflicts": facts}
    return Report(record, [title, *([Grid.of_rows(headers, lines, headers)] if lines else [])])


def verify_report(found: Verified) -> Report:
    """Report each row, the ranges that do not hold, and what was repaired."""
    device = found.repaired.device
    lines = [_line(check, check.problem.name, device) for check in found.rows]
    lines += [
        _line(check, f"{range_text(its.row)} at {check.problem.size}", device)
        for its in found.ranges
        for check in its.checks
        if not check.holds
    ]
    holding = f"{count(sum(check.holds for check in found.rows), 'row')} of {len(found.rows)} hold"
    if not found.rows and not found.ranges:
        return Report({"holds": True, "rows": [], "ranges": []}, ["no row is in doubt; nothing was measured"])
    if found.ranges:
        holding += f", {count(sum(its.holds for its in found.ranges), 'range')} of {len(found.ranges)}"
    record = {
        "holds": found.holds,
        "rows": [_check_json(check) for check in found.rows],
        "ranges": [
            json_fields(its.row, "problem", "first", "last")
            | {"holds": its.holds, "sizes": [_check_json(check) for check in its.checks]}
            for its in found.ranges
        ],
    }
    return Report(record, [Grid.of_rows(_VERIFY_HEADERS, lines, _LEFT), "; ".join([holding, *_repaired(found)])])


def range_row_json(row: RangeRow) -> dict[str, object]:
    """Return one range for programs; losses are per size."""
    losses = {name: dict(getattr(row, name)) for name in ("tuned", "held_out", "probed")}
    return json_fields(row, "problem", "first", "last") | json_fields(row.choice, "space", "config") | losses


def _interval(choice: Choice) -> str:
    """Return the 95 % interval in µs; a dash for an estimate, whose error is unknown."""
    if choice.evidence is Evidence.ESTIMATED:
        return "-"
    return f"{microseconds(choice.low_ns)}–{microseconds(choice.high_ns)}"


def _ranges_grid(table: Table) -> Grid:
    """Return a line per range: the sizes it serves, what runs there, and its losses at measured sizes."""
    rows, size = table.ranges, size_name(table)
    columns = {
        "problem": [row.problem.series_name for row in rows],
        size: [f"{row.first}–{row.last}" for row in rows],
        "run": [row.choice.space for row in rows],
        f"loss at tuned {size}": [_losses(row.tuned) for row in rows],
        f"probed {size}": [_losses(row.probed) for row in rows],
        f"held-out {size}": [_losses(row.held_out) for row in rows],
        "config": [choice_text(table.device, row.problem, row.choice) for row in rows],
    }
    return Grid(columns, tuple(columns))


def size_name(table: Table) -> str:
    """Return the name of the size that the table's ranges span; `size` if they differ."""
    names = {row.problem.range_size for row in table.ranges}
    return names.pop() if len(names) == 1 else "size"


def range_text(row: RangeRow) -> str:
    """Return the series and the sizes of a range: `mx4096x4096:bf16:nt, m 17–32`."""
    return f"{row.problem.series_name}, {row.problem.range_size} {row.first}–{row.last}"


def _losses(losses: Sequence[tuple[int, float]]) -> str:
    return ", ".join(f"{m}: {loss:.1%}" for m, loss in losses) or "-"


def first_choice(row: Row | RangeRow) -> Choice:
    """Return the choice that a row or a range runs."""
    return row.choice if isinstance(row, RangeRow) else row.choices[0]


def _ran(row: Row | RangeRow) -> tuple[str, str]:
    """Return the space that runs, and its time in µs; a range has no time of its own."""
    choice = first_choice(row)
    return choice.space, "-" if isinstance(row, RangeRow) else microseconds(choice.time_ns)


def _shift(change: Change) -> str:
    """Return the change of the time; a dash where the two times are not comparable."""
    before, after = change.before.choices[0], change.after.choices[0]
    return f"{after.time_ns / before.time_ns - 1:+.1%}" if terms(before) == terms(after) else "-"


def _first(row: Row | RangeRow) -> dict[str, object]:
    times = ("time_ns", "low_ns", "high_ns")
    return json_fields(first_choice(row), "space", "config", *times, "evidence", "protocol", "toolchain")


def _repaired(found: Verified) -> list[str]:
    """Return what was replaced, rebuilt and dropped; nothing for a table that holds."""
    failed = {check.problem for check in found.rows if not check.holds}
    replaced = len(failed & {row.problem for row in found.repaired.rows})
    ranged = {row.problem.series for row in found.repaired.ranges}
    broken = [its.row for its in found.ranges if not its.holds]
    probed = {its.row.problem.series for its in found.ranges if its.row.probed}
    rebuilt = {row.problem.series for row in broken} & probed & ranged
    dropped = sum(row.problem.series not in rebuilt for row in broken)
    repaired = {
        f"{count(replaced, 'row')} replaced by {'its' if replaced == 1 else 'their'} best contender": replaced,
        f"{count(len(failed) - replaced, 'row')} dropped (no contender works)": len(failed) - replaced,
        f"ranges of {count(len(rebuilt), 'GEMM')} rebuilt": len(rebuilt),
        f"{count(dropped, 'range')} dropped (no probes: tune again)": dropped,
    }
    return [text for text, number in repaired.items() if number]


def _line(check: Check, name: str, device: Device) -> list[str]:
    choice = check.choice
    return [
        name,
        choice.space,
        microseconds(choice.time_ns),
        microseconds(check.time_ns),
        "-" if check.loss is None else f"{check.loss:.1%}",
        "yes" if check.holds else "no" if check.loss is not None else "does not work",
        choice_text(device, check.problem, choice),
    ]


def _check_json(check: Check) -> dict[str, object]:
    return {
        "problem": check.problem.name,
        **json_fields(check.choice, "space", "config"),
        "said_ns": check.choice.time_ns,
        **json_fields(check, "time_ns", "loss", "holds"),
    }


def earlier_notes(found: Sequence[EarlierRow], searched: Set[Workload]) -> list[str]:
    """Return what became of the rows: those without a new row by their reason, all others on lines of their own."""
    groups: defaultdict[tuple[Fate, str, str], list[EarlierRow]] = defaultdict(list)
    for each in found:
        noun = "earlier range" if isinstance(each.before, RangeRow) else "earlier row"
        of = f" of {each.reason}" if each.now is None else ""
        if of and each.fate is Fate.KEPT and each.before.problem in searched:
            of = " of problems without a measurement now"
        groups[each.fate, noun, of].append(each)
    return [_note(fate, f"{count(len(rows), noun)}{of}", rows) for (fate, noun, of), rows in groups.items()]


def earlier_json(found: Sequence[EarlierRow]) -> list[dict[str, object]]:
    """Return every row with its fate for programs."""
    return [
        {
            "problem": each.before.problem.name,
            "fate": each.fate,
            "reason": each.reason,
            "before": _first(each.before),
            "now": each.now and _first(each.now),
        }
        for each in found
    ]


def _note(fate: Fate, what: str, rows: Sequence[EarlierRow]) -> str:
    kept = fate is Fate.KEPT
    if rows[0].now is None:
        names = [_name(each.before) for each in rows]
        if kept and len(names) > _MOST_NAMED:
            names[_MOST_NAMED:] = ["..."]
        return f"{fate} {what} ({', '.join(names)}){'; --replace drops them' if kept else ''}"
    lines = [_change(each) for each in rows]
    head = f"{fate} {what}{', which --replace drops' if kept else ''}:"
    return f"{head} {lines[0]}" if len(lines) == 1 else "\n  ".join([head, *lines])


def _change(each: EarlierRow) -> str:
    """Return `16x4096x4096:bf16:nt triton_mm 17.7 -> aten 19.3 µs (torch 2.11.0, now 2.13.0)`."""
    rows = [row for row in (each.before, each.now) if row is not None]
    before, now = (f"{choice.space} {microseconds(choice.time_ns)}" for choice in map(first_choice, rows))
    link = "stays, not" if each.fate is Fate.KEPT else "->"
    return f"{_name(each.before)} {before} {link} {now} µs ({each.reason})"


def _name(row: Row | RangeRow) -> str:
    return range_text(row) if isinstance(row, RangeRow) else row.problem.name
