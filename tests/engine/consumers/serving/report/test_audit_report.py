from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from gemmtune.engine.consumers.serving.audit import audit
from gemmtune.engine.consumers.serving.losses import EntryLoss
from gemmtune.engine.consumers.serving.report.page import audit_html
from gemmtune.engine.consumers.serving.report.report import audit_report, tokens_text
from gemmtune.engine.consumers.serving.rules import RULES, Finding, Level, Rule

NAME = "N=512,K=7168,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json"
ENTRY = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 256, "GROUP_SIZE_M": 1, "num_warps": 4}


def found_in(tmp_path):
    (tmp_path / NAME).write_text(json.dumps({"2048": ENTRY, "4096": ENTRY}))
    (tmp_path / "other.json").write_text("{}")
    return audit(str(tmp_path))


def test_text_and_json_name_each_rule_file_and_token(tmp_path):
    report = audit_report(found_in(tmp_path))
    text = report.to_text()
    assert "1 linear files of vllm" in text
    assert "missing keys" in text
    assert NAME in text
    assert "2048, 4096" in text
    assert "1 JSON file of other kinds not examined" in text
    record: Any = report.to_json()
    assert record["holds"] is False
    assert record["rules"]["tile over the block of scales"] == {"severity": "fault", "files": 1, "entries": 2}
    assert [each["rule"] for each in record["findings"]] == ["tile over the block of scales", "missing keys"]


def test_a_folder_without_findings_says_so(tmp_path):
    entries = {str(t): {**ENTRY, "BLOCK_SIZE_K": 128, "num_stages": 2} for t in (1, 2, 4, 8, 16, 32, 64, 128, 256)}
    (tmp_path / NAME).write_text(json.dumps(entries | {str(t): entries["1"] for t in (512, 1024, 2048, 4096)}))
    assert "no rule is broken" in audit_report(audit(str(tmp_path))).to_text()


def test_the_page_holds_every_finding_and_loads_nothing(tmp_path):
    page = audit_html(found_in(tmp_path))
    assert page.count(NAME) >= 3  # two findings, and the list of files
    assert "missing keys" in page
    assert "<script src" not in page


@pytest.fixture
def two_kinds(tmp_path):
    """Audit with two faults of a linear file, a fault and advice of a MoE file for an unknown device."""
    entries = {str(tokens): ENTRY | {"GROUP_SIZE_M": tokens} for tokens in (1, 2, 4, 8, 16, 32, 64, 2048)}
    (tmp_path / NAME).write_text(json.dumps(entries))
    (tmp_path / MOE).write_text(json.dumps({"4096": ENTRY | {"num_stages": 3}}))
    (tmp_path / "other.json").write_text("{}")
    return audit(str(tmp_path))


MOE = "E=8,N=512,device_name=NVIDIA_X1.json"
UNKNOWN = "shared memory not examined for devices that gemmtune does not know: NVIDIA_X1"
SCALES = "the block of scales"
FAR = "of the 18 token counts of the tuner have no key within 4×"
OVER = "BLOCK_SIZE_K 256 > 128, the block of scales"
FINDINGS = [
    [MOE, "fault", "missing keys", "all", f"13 {FAR}: 1 runs the entry of 4096; keys 4096"],
    [MOE, "advice", "no Triton version", "all", "neither the file nor its folder names a version of Triton"],
    [NAME, "fault", "tile over the block of scales", "1, 2, 4, 8, 16, 32, … (8)", OVER],
    [NAME, "fault", "missing keys", "all", f"2 {FAR}: 1024 runs the entry of 64; keys 1, 2, 4, 8, 16, 32, … 2048"],
]


def test_the_report_has_faults_before_advice_and_numbers_per_rule(two_kinds):
    title, rules, findings, notes = audit_report(two_kinds).to_text().split("\n\n")
    assert title.endswith(": 1 linear files of vllm, 1 moe files of vllm")
    cells = [re.split(r" {2,}", line.strip()) for line in rules.splitlines()]
    assert cells[0] == ["severity", "rule", "files", "entries", "what happens"]
    assert [line[:4] for line in cells[2:]] == [
        ["fault", "tile over the block of scales", "1", "8"],
        ["fault", "missing keys", "2", "-"],
        ["advice", "no Triton version", "1", "-"],
    ]
    shown = [re.split(r" {2,}", line) for line in findings.splitlines()[2:]]
    ordered = [FINDINGS[number] for number in (0, 2, 3, 1)]
    assert shown == [[severity, rule, path, tokens, found] for path, severity, rule, tokens, found in ordered]
    assert notes == f"1 JSON file of other kinds not examined\n{UNKNOWN}"


def test_the_record_has_every_field_of_the_audit_and_the_losses(two_kinds):
    record: Any = audit_report(two_kinds, [EntryLoss(NAME, 64, "layer", 0.125)]).to_json()
    findings, rules = record.pop("findings"), record.pop("rules")
    assert [[each["path"], each["severity"], each["rule"], each["found"]] for each in findings] == [
        [path, severity, rule, found] for path, severity, rule, _, found in FINDINGS
    ]
    assert [each["tokens"] for each in findings] == [[], [], [1, 2, 4, 8, 16, 32, 64, 2048], []]
    assert list(rules.values())[1:] == [
        {"severity": "fault", "files": 2, "entries": 0},
        {"severity": "advice", "files": 1, "entries": 0},
    ]
    assert record | {"source": ""} == {
        "source": "",
        "device": None,
        "triton": None,
        "holds": False,
        "files": 2,
        "other_files": 1,
        "unknown_devices": ["NVIDIA_X1"],
        "losses": [{"path": NAME, "tokens": 64, "problem": "layer", "loss": 0.125}],
    }


def test_the_page_has_the_numbers_of_rules_findings_and_files(two_kinds):
    page = re.sub(r"<style.*?</style>|<script.*?</script>", "", audit_html(two_kinds), flags=re.DOTALL)
    cards = re.findall(r"<b>(.*?)</b><span>(.*?)</span>", page)
    assert cards == [("2", "files examined"), ("2", "files with a fault"), ("1", "files with advice")]
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(<td.*?)</tr>", page)]
    assert [row[:4] for row in rows[:3]] == [
        ["tile over the block of scales", "fault", "1", "8"],
        ["missing keys", "fault", "2", "0"],
        ["no Triton version", "advice", "1", "0"],
    ]
    assert [[cell.replace("&gt;", ">") for cell in row] for row in rows[3:7]] == FINDINGS
    assert rows[7:] == [[MOE, "NVIDIA_X1", "-", "1", "1", "1"], [NAME, "NVIDIA_H200", "-", "8", "2", "0"]]
    drawn = re.findall(r">(no Triton version|missing keys|tile over the block of scales)</text>", page)
    assert drawn == ["no Triton version", "missing keys", "tile over the block of scales"]  # from below
    assert re.findall(r"fill: var\(--(tie|loss)\)", page) == ["tie", "loss", "loss"]
    assert ">files</text>" in page  # what the bars count
    assert UNKNOWN in page
    assert "4 findings; " in page


@pytest.mark.parametrize(
    ("tokens", "text"),
    [((), "all"), ((8,), "8"), ((1, 2, 3, 4, 5, 6), "1, 2, 3, 4, 5, 6"), (range(7), "0, 1, 2, 3, 4, 5, … (7)")],
)
def test_token_counts_are_cut_to_six(tokens, text):
    assert tokens_text(Finding("x.json", Rule.STALE, "slow", tuple(tokens))) == text


@pytest.mark.parametrize(("findings", "further"), [(40, ""), (41, "1 further finding: "), (42, "2 further findings: ")])
def test_forty_findings_are_printed(two_kinds, findings, further):
    many = replace(two_kinds, findings=(Finding(NAME, Rule.STALE, "slow"),) * findings, other_files=0)
    text = audit_report(many).to_text()
    assert text.count("slow") == 40
    assert ("further" in text, further in text) == (bool(further), True)


def test_every_rule_is_a_fault_or_advice_for_what_the_engine_does():
    faults = {rule.value for rule, (level, _) in RULES.items() if level is Level.FAULT}
    assert faults == {
        "unreadable file",
        "non-integer keys",
        "missing parameters",
        "unknown parameters",
        "values no launch takes",
        "tile over the block of scales",
        "shared memory",
        "missing keys",
    }
