"""Report of `gemmtune check`: each broken rule, and the files with faults."""

from collections import Counter
from collections.abc import Sequence

from gemmtune.engine.consumers.serving.audit import Audit, counts
from gemmtune.engine.consumers.serving.losses import EntryLoss
from gemmtune.engine.consumers.serving.rules import RULES, Finding, Level
from gemmtune.engine.report.layout import Grid, Report, count, json_fields

_LEFT = ("rule", "severity", "what happens", "file", "tokens", "found")
_MOST_LINES = 40
"""Findings that are printed; a page and the JSON have all."""
_MOST_TOKENS = 6


def audit_report(found: Audit, losses: Sequence[EntryLoss] = ()) -> Report:
    """Report an audit: the rules with the files that break them, then every fault, then advice while lines are few.

    `losses` are those of entries against a measured table.
    """
    record: dict[str, object] = {
        "source": found.source,
        "device": found.device or None,
        "triton": found.triton or None,
        "holds": found.holds,
        "files": len(found.files),
        "other_files": found.other_files,
        "unknown_devices": found.unknown_devices,
        "rules": {
            rule.value: {"severity": RULES[rule][0], "files": files, "entries": entries}
            for rule, (files, entries) in counts(found).items()
        },
        "findings": [
            {"severity": each.level, **json_fields(each, "path", "rule", "found", "tokens")} for each in found.findings
        ],
    }
    if losses:
        record["losses"] = [json_fields(each, "path", "tokens", "problem", "loss") for each in losses]
    title = f"{found.source}: {kinds_text(found)}{f' for {found.device}' if found.device else ''}"
    if not found.findings:
        return Report(record, ["\n".join([title, "no rule is broken", *notes(found)])])
    shown = sorted(found.findings, key=lambda each: each.level is not Level.FAULT)[:_MOST_LINES]
    lines = ((f.level.value, f.rule.value, f.path.rpartition("/")[2], tokens_text(f), f.found) for f in shown)
    sections: list[str | Grid] = [title, _rules_grid(found), Grid.of_rows(_HEADERS, lines, _LEFT)]
    more = len(found.findings) - len(shown)
    tail = [f"{count(more, 'further finding')}: --html FILE and --json have all"] if more else []
    return Report(record, [*sections, *(["\n".join([*tail, *notes(found)])] if tail or notes(found) else [])])


def kinds_text(found: Audit) -> str:
    """Return the numbers of files by engine and kernel: `338 moe and 244 linear files of vllm`."""
    numbers = Counter((file.name.engine.value, file.name.kernel.value) for file in found.files)
    return ", ".join(f"{number} {kernel} files of {engine}" for (engine, kernel), number in sorted(numbers.items()))


def notes(found: Audit) -> list[str]:
    """Return lines that say what was not examined."""
    lines = []
    if found.other_files:
        lines.append(f"{count(found.other_files, 'JSON file')} of other kinds not examined")
    if found.unknown_devices:
        names = ", ".join(name or "(no name)" for name in found.unknown_devices)
        lines.append(f"shared memory not examined for devices that gemmtune does not know: {names}")
    return lines


def tokens_text(finding: Finding) -> str:
    """Return the token counts of a finding, cut to a few; `all` for the whole file."""
    if not finding.tokens:
        return "all"
    first = ", ".join(map(str, finding.tokens[:_MOST_TOKENS]))
    return first if len(finding.tokens) <= _MOST_TOKENS else f"{first}, … ({len(finding.tokens)})"


_HEADERS = ("severity", "rule", "file", "tokens", "found")


def _rules_grid(found: Audit) -> Grid:
    rows = [
        (RULES[rule][0].value, rule.value, str(files), str(entries) if entries else "-", RULES[rule][1])
        for rule, (files, entries) in counts(found).items()
    ]
    return Grid.of_rows(("severity", "rule", "files", "entries", "what happens"), rows, _LEFT)
