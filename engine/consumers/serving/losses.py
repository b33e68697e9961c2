"""Loss of a tuned file's entries against configs that a campaign measured."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from gemmtune.engine.consumers.serving.audit import Audit
from gemmtune.engine.consumers.serving.contract.devices import device_text
from gemmtune.engine.consumers.serving.contract.file_name import version_numbers
from gemmtune.engine.consumers.serving.contract.layer_files import file_name_of
from gemmtune.engine.consumers.serving.contract.tuned_file import TunedFile
from gemmtune.engine.consumers.serving.rules import Finding, Rule, in_order
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.table import Choice, Row, Table


@dataclass(frozen=True, slots=True)
class EntryLoss:
    """Loss of an entry for one layer and token count."""

    path: str
    """Path of the file."""
    tokens: int
    """Token count that the entry serves here."""
    problem: str
    """Name of the layer."""
    loss: float | None
    """Time of the entry over the time of the row's choice, minus 1; None if the entry was not measured."""


def entry_losses(found: Audit, table: Table) -> tuple[EntryLoss, ...]:
    """Return the loss of the entry that each row's token count looks up, in the order of the rows.

    Rows without an audited file are left out.

    Raises:
        TableError: no row of the table is of a layer with an audited file.
    """
    # SGLang has a file per version of Triton: the newest one stands for the name.
    files: dict[tuple[str, str], TunedFile] = {}
    for file in sorted(found.files, key=lambda each: version_numbers(each.name.triton)):
        if not file.name.down and file.entries:
            files[file.name.engine, file.name.text] = file
    losses = tuple(_losses(table, files))
    if not losses:
        raise TableError(
            f"no row of the table is of a layer with a file in {found.source}; its rows are for {table.device.name}: "
            f"{', '.join(row.problem.name for row in table.rows[:3])}, …"
        )
    return losses


def with_losses(found: Audit, losses: tuple[EntryLoss, ...], margin: float) -> Audit:
    """Return the audit with a finding per file whose entries lose more than a margin."""
    stale: dict[str, list[EntryLoss]] = {}
    for each in losses:
        if each.loss is not None and each.loss > margin:
            stale.setdefault(each.path, []).append(each)
    more = []
    for path, of in stale.items():
        worst = max(of, key=lambda each: each.loss or 0.0)
        measured = sum(each.path == path and each.loss is not None for each in losses)
        text = (
            f"{len(of)} of {measured} measured entries are over {margin:.1%} slower than a config that was found; "
            f"{worst.loss:.1%} at {worst.tokens} tokens ({worst.problem})"
        )
        more.append(Finding(path, Rule.STALE, text, tuple(sorted({each.tokens for each in of}))))
    return replace(found, findings=in_order((*found.findings, *more)))


def _losses(table: Table, files: Mapping[tuple[str, str], TunedFile]) -> Iterator[EntryLoss]:
    for row in table.rows:
        name = file_name_of(row.problem, table.device)
        file = None if name is None else files.get((name.engine, name.text))
        if name is None or file is None or name.device != device_text(table.device.name, name.engine, name.kernel):
            continue
        entry = file.entry(row.problem.size)
        measured = None if entry.config is None else _measured(row, entry.config)
        loss = None if measured is None else max(0.0, measured.time_ns / row.choices[0].time_ns - 1)
        yield EntryLoss(file.path, row.problem.size, row.problem.name, loss)


def _measured(row: Row, entry: Mapping[str, object]) -> Choice | None:
    """Return the row's choice that runs what the entry says; a deeper tile than the kernel's is clamped."""
    for choice in row.choices:
        known = {name: value for name, value in entry.items() if name in choice.config}
        differing = [name for name, value in known.items() if choice.config[name] != value]
        clamped = differing == ["BLOCK_SIZE_K"] and choice.space == row.problem.baseline_space
        if len(known) >= len(choice.config) - 2 and (not differing or clamped):
            return choice
    return None
