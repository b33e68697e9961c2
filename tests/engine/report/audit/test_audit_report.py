from __future__ import annotations

import json

from gemmtune.engine.report.audit.page import audit_html
from gemmtune.engine.report.audit.report import audit_report
from gemmtune.engine.tables.serving.audit import audit

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
    record = report.to_json()
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
