"""Page of `gemmtune check`: every finding, filterable, and how the files spread over the rules."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gemmtune.engine.consumers.serving.audit import Audit, counts
from gemmtune.engine.consumers.serving.report.report import kinds_text, notes, tokens_text
from gemmtune.engine.consumers.serving.rules import RULES, Level
from gemmtune.engine.report.html.drawing import COLORS, Picture
from gemmtune.engine.report.html.page import Card, Page, Section, Sheet, render
from gemmtune.engine.report.layout import count

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_KINDS = {Level.FAULT: "loss", Level.ADVICE: "tie"}


def audit_html(found: Audit) -> str:
    """Return the page of an audit; equal audits give equal text."""
    faulty = len({each.path for each in found.findings if each.level is Level.FAULT})
    advised = len({each.path for each in found.findings if each.level is Level.ADVICE})
    cards = [
        Card(str(len(found.files)), "files examined"),
        Card(str(faulty), "files with a fault"),
        Card(str(advised), "files with advice"),
    ]
    parts = [kinds_text(found), found.device, f"Triton {found.triton} required" if found.triton else ""]
    subtitle = " · ".join(part for part in (*parts, *notes(found)) if part)
    sections = [_rules(found), _findings(found), _files(found)]
    return render(Page(f"gemmtune check: {found.source}", subtitle, sections, cards))


def _rules(found: Audit) -> Section:
    broken = counts(found)
    pictures = []
    if broken:

        def draw(figure: Figure) -> None:
            axes = figure.subplots()
            names = [rule.value for rule in broken][::-1]
            numbers = [files for files, _ in broken.values()][::-1]
            colors = [COLORS[_KINDS[RULES[rule][0]]].light for rule in broken][::-1]
            axes.barh(range(len(names)), numbers, color=colors)
            axes.set_yticks(range(len(names)), names)
            axes.set_xlabel("files")

        pictures.append(Picture("Files that break each rule", 0.9 + 0.3 * len(broken), draw))
    rows = [
        [rule.value, RULES[rule][0].value, str(files), str(entries), RULES[rule][1]]
        for rule, (files, entries) in broken.items()
    ]
    headers = ["rule", "severity", "files", "entries", "what happens"]
    text = "Files that break each rule. A fault stops the engine, makes its result wrong, or runs a foreign config."
    left = ("rule", "severity", "what happens")
    return Section("Rules", text if rows else "No rule is broken.", pictures, Sheet(headers, rows, left))


def _findings(found: Audit) -> Section:
    rows = [[each.path, each.level.value, each.rule.value, tokens_text(each), each.found] for each in found.findings]
    headers = ["file", "severity", "rule", "tokens", "found"]
    kinds = [_KINDS[each.level] for each in found.findings]
    text = f"{count(len(rows), 'finding')}; the tokens are those of the entries that break the rule."
    return Section("Findings", text, sheet=Sheet(headers, rows, headers, kinds, filterable=True))


def _files(found: Audit) -> Section:
    numbers = Counter(each.path for each in found.findings)
    faults = Counter(each.path for each in found.findings if each.level is Level.FAULT)
    rows = [
        [
            file.path,
            file.name.device,
            file.triton or "-",
            str(len(file.entries)),
            str(faults[file.path]),
            str(numbers[file.path] - faults[file.path]),
        ]
        for file in found.files
    ]
    headers = ["file", "device", "Triton", "entries", "faults", "advice"]
    sheet = Sheet(headers, rows, ("file", "device", "Triton"), filterable=True)
    return Section("Files", "Every file that was examined.", sheet=sheet)
