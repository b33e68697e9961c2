from __future__ import annotations

import json

ENTRY = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 3}
GOOD = {str(tokens): ENTRY for tokens in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)}


def test_the_exit_status_tells_a_fault_from_advice(run, tmp_path):
    path = tmp_path / "E=8,N=512,device_name=NVIDIA_H200.json"
    path.write_text(json.dumps(GOOD))
    done = run("check", tmp_path, "--device", "H200", "--json")
    assert done.status == 0
    assert list(done.record["rules"]) == ["no Triton version"]
    path.write_text(json.dumps({"4096": ENTRY}))
    done = run("check", tmp_path, "--html", tmp_path / "page.html")
    assert done.status == 1
    assert "missing keys" in done.out
    assert "missing keys" in (tmp_path / "page.html").read_text()


def test_a_source_that_is_nothing_is_refused(run, tmp_path):
    done = run("check", tmp_path / "nothing")
    assert done.status == 2
    assert "is no folder, no wheel, no tuned file (.json) and no installed package" in done.err


def test_several_files_are_audited_in_one_call(run, tmp_path):
    paths = [tmp_path / f"E={experts},N=512,device_name=NVIDIA_H20.json" for experts in (8, 16)]
    for path in paths:
        path.write_text(json.dumps(GOOD))
    done = run("check", *paths, "--device", "H20", "--json")
    assert done.status == 0
    assert done.record["files"] == 2
    assert {finding["path"] for finding in done.record["findings"]} == {str(path) for path in paths}
