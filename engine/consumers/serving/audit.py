"""Audit of the tuned files of an engine: every file by itself, and files against each other."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from gemmtune.engine.consumers.serving.contract.devices import device_named, device_of, device_text
from gemmtune.engine.consumers.serving.contract.file_name import FileName, parse_name
from gemmtune.engine.consumers.serving.contract.tuned_file import TunedFile, parse_file
from gemmtune.engine.consumers.serving.rules import Finding, Level, Rule, examine, in_order
from gemmtune.engine.consumers.serving.sources import json_files, pinned_triton
from gemmtune.engine.records.errors import TableError, UsageError


class NoTunedFileError(UsageError):
    """A source has no tuned file, or none for the device."""


@dataclass(frozen=True, slots=True)
class Audit:
    """Result of an audit."""

    source: str
    """Files, folders, wheels and packages that were audited, separated by commas."""
    device: str
    """Short name of the device whose files were audited; empty for all."""
    triton: str
    """Release of Triton that the engine requires, `3.8`; empty if unknown."""
    files: tuple[TunedFile, ...]
    """Files that were audited, sorted by path."""
    findings: tuple[Finding, ...]
    """Broken rules, sorted by path; those of one file in the order of the rules."""
    other_files: int
    """JSON files of other kinds, which no rule knows."""
    unknown_devices: tuple[str, ...]
    """Devices of audited files whose shared memory is not known, sorted."""

    @property
    def holds(self) -> bool:
        """Whether no file has a fault."""
        return all(finding.level is not Level.FAULT for finding in self.findings)


def audit(source: str, device: str | None = None, triton: str = "") -> Audit:
    """Audit the tuned files of a source, without a GPU and without importing it.

    Args:
        source: a tuned file, a folder, a wheel's file or an installed package's name.
        device: sku of the device whose files are audited; None for those of every device.
        triton: release of Triton that the engine runs with; by default the one that the package or wheel requires.

    Raises:
        DeviceError: no device has that sku.
        NoTunedFileError: it has no tuned file, or none for the device.
        UsageError: there is no such source.
    """
    wanted = None if device is None else device_named(device)

    def is_asked(name: FileName) -> bool:
        return wanted is None or name.device == device_text(wanted.name, name.engine, name.kernel)

    required = triton or pinned_triton(source)
    files, findings, others = [], [], 0
    for path, content in json_files(source):
        name = parse_name(path)
        if name is None:
            others += 1
            continue
        try:
            files.append(parse_file(str(path), name, content))
        except TableError as refused:
            if is_asked(name):
                findings.append(Finding(str(path), Rule.UNREADABLE, str(refused)))
    chosen = [file for file in files if is_asked(file.name)]
    if not chosen and not findings:
        known = ", ".join(sorted({file.name.device for file in files}))
        raise NoTunedFileError(
            f"{source} has no tuned file for {wanted.name}; it has some for {known}"
            if wanted is not None and files
            else f"{source} has no tuned file of vLLM or SGLang (E=…,N=….json or N=…,K=….json)"
        )
    for file in chosen:
        findings += examine(file, required)
    findings += _copies(chosen, files)
    findings += _down_rows(chosen, files)
    return Audit(
        source=source,
        device=wanted.sku if wanted else "",
        triton=required,
        files=tuple(chosen),
        findings=in_order(findings),
        other_files=others,
        unknown_devices=tuple(sorted({f.name.device for f in chosen if device_of(f.name.device) is None})),
    )


def audit_all(sources: Sequence[str], device: str | None = None, triton: str = "") -> list[Audit]:
    """Return an audit per source; of a folder that holds wheels, one per wheel that has tuned files.

    Arguments and errors are those of `audit`.
    """
    found = []
    for source in sources:
        wheels = sorted(map(str, Path(source).glob("*.whl")))
        of_source = []
        for each in (source, *wheels):
            try:
                of_source.append(audit(each, device, triton))
            except NoTunedFileError:
                if not wheels or (each == wheels[-1] and not of_source):
                    raise
        found += of_source
    return found


def joined(audits: Sequence[Audit]) -> Audit:
    """Return one audit of several sources, each examined by itself; the paths of several begin with their source."""
    if len(audits) == 1:
        return audits[0]

    def under(each: Audit, path: str) -> str:
        return path if path == each.source else f"{each.source}/{path}"

    return Audit(
        source=", ".join(each.source for each in audits),
        device=audits[0].device,
        triton=" and ".join(dict.fromkeys(each.triton for each in audits if each.triton)),
        files=tuple(replace(file, path=under(each, file.path)) for each in audits for file in each.files),
        findings=in_order(replace(f, path=under(each, f.path)) for each in audits for f in each.findings),
        other_files=sum(each.other_files for each in audits),
        unknown_devices=tuple(sorted({name for each in audits for name in each.unknown_devices})),
    )


def _copies(chosen: list[TunedFile], files: list[TunedFile]) -> list[Finding]:
    """Return a finding per chosen file whose bytes another file for the same kernel has, too."""
    groups: dict[tuple[str, str, str], list[TunedFile]] = {}
    for file in files:
        # SGLang keeps a folder per version of Triton; an unchanged file in the next folder is its carrying on.
        groups.setdefault((file.name.engine, file.name.folder, file.sha256), []).append(file)
    found = []
    for file in chosen:
        group = groups[file.name.engine, file.name.folder, file.sha256]
        others = [str(PurePosixPath(each.path).name) for each in group if each.path != file.path]
        if others:
            more = f" and {len(others) - 1} more" if len(others) > 1 else ""
            found.append(Finding(file.path, Rule.COPIED, f"byte-identical to {others[0]}{more}"))
    return found


def _down_rows(chosen: list[TunedFile], files: list[TunedFile]) -> list[Finding]:
    """Return a finding per file of a second GEMM whose rows per tile are not the first GEMM's."""
    ups = {replace(file.name, down=False): file for file in files if not file.name.down}
    found = []
    for file in chosen:
        up = ups.get(file.name.up()) if file.name.down else None
        if up is None or not up.entries:
            continue
        differ = [
            entry.tokens
            for entry in file.entries
            if entry.config is not None
            and (first := up.entry(entry.tokens).config) is not None
            and first.get("BLOCK_SIZE_M") != entry.config.get("BLOCK_SIZE_M")
        ]
        if differ:
            text = f"BLOCK_SIZE_M differs at {len(differ)} of {len(file.entries)} token counts"
            found.append(Finding(file.path, Rule.DOWN_ROWS, text, tuple(differ)))
    return found


def counts(found: Audit) -> dict[Rule, tuple[int, int]]:
    """Return the number of files and of entries that break each rule, in the order of the rules."""
    files = Counter(rule for rule, _ in {(finding.rule, finding.path) for finding in found.findings})
    entries: Counter[Rule] = Counter()
    for finding in found.findings:
        entries[finding.rule] += len(finding.tokens)
    return {rule: (files[rule], entries[rule]) for rule in Rule if files[rule]}
