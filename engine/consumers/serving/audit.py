"""Audit of the tuned files of an engine: every file by itself, and files against each other."""

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from gemmtune.engine.consumers.serving.contract.file_name import FileName, device_of, device_text, parse_name
from gemmtune.engine.consumers.serving.contract.tuned_file import TunedFile, parse_file
from gemmtune.engine.consumers.serving.rules import Finding, Level, Rule, examine, in_order
from gemmtune.engine.consumers.serving.sources import json_files, pinned_triton
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import TableError, UsageError


@dataclass(frozen=True, slots=True)
class Audit:
    """Result of an audit."""

    source: str
    """Folder, wheel or package that was audited."""
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


def audit(source: str, device: Device | None = None, triton: str = "") -> Audit:
    """Audit the tuned files of a folder, a wheel or an installed package, without a GPU and without importing it.

    Args:
        source: the folder, the wheel's file or the package's name.
        device: audit the files that the engine loads on this device; None for those of every device.
        triton: release of Triton that the engine runs with; by default the one that the package or wheel requires.

    Raises:
        UsageError: there is no such source, or it has no tuned file, or none for the device.
    """

    def is_asked(name: FileName) -> bool:
        return device is None or name.device == device_text(device, name.engine, name.kernel)

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
        raise UsageError(
            f"{source} has no tuned file for {device.name}; it has some for {known}"
            if device is not None and files
            else f"{source} has no tuned file of vLLM or SGLang (E=…,N=….json or N=…,K=….json)"
        )
    for file in chosen:
        findings += examine(file, required)
    findings += _copies(chosen, files)
    findings += _down_rows(chosen, files)
    return Audit(
        source=source,
        device=device.sku if device else "",
        triton=required,
        files=tuple(chosen),
        findings=in_order(findings),
        other_files=others,
        unknown_devices=tuple(sorted({f.name.device for f in chosen if device_of(f.name.device) is None})),
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
        up = ups.get(file.name.up())
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
