from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from gemmtune.engine.consumers.serving.audit import audit, audit_all, counts, joined
from gemmtune.engine.consumers.serving.contract.file_name import Engine, Kernel
from gemmtune.engine.consumers.serving.rules import Level, Rule
from gemmtune.engine.records.errors import UsageError

TUNED = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096)


MOE = "E=8,N=512,device_name=NVIDIA_H200"
BLOCK = f"{MOE},dtype=fp8_w8a8,block_shape=[128,128].json"
LINEAR = "N=512,K=7168,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json"
SGLANG_LINEAR = LINEAR.replace("[128,128]", "[128, 128]")


def config(m=16, n=64, k=128, group=1, warps=4, stages=3, **more):
    tile = {"BLOCK_SIZE_M": m, "BLOCK_SIZE_N": n, "BLOCK_SIZE_K": k}
    return {**tile, "GROUP_SIZE_M": group, "num_warps": warps, "num_stages": stages, **more}


def write(folder: Path, name: str, entries: dict[object, object]) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({str(key): value for key, value in entries.items()}))
    return path


GOOD = dict.fromkeys(TUNED, config())
SHALLOW = dict.fromkeys(TUNED, config(k=32))


def broken(folder, name, entries, **options):
    write(folder, name, entries)
    return {finding.rule: finding for finding in audit(str(folder), **options).findings}


def test_a_complete_file_breaks_no_rule(tmp_path):
    write(tmp_path, f"{MOE}.json", {"triton_version": "3.8.0", **GOOD})
    found = audit(str(tmp_path), "H200", "3.8")
    assert found.findings == ()
    assert found.holds


@pytest.mark.parametrize(
    ("name", "entries", "rule", "tokens"),
    [
        (LINEAR, {"triton_version": "3.8.0", **GOOD}, Rule.ODD_KEYS, ()),
        (f"{MOE}.json", {**GOOD, "note": config()}, Rule.ODD_KEYS, ()),
        (LINEAR, {2048: config(), 4096: config()}, Rule.MISSING_KEYS, ()),
        (f"{MOE}.json", {}, Rule.MISSING_KEYS, ()),
        (f"{MOE}.json", {**GOOD, 1: {"BLOCK_SIZE_M": 16}}, Rule.MISSING_PARAMS, (1,)),
        (f"{MOE}.json", {**GOOD, 8: config(waves_per_eu=2)}, Rule.UNKNOWN_PARAMS, (8,)),
        (f"{MOE},dtype=int4_w4a16.json", {**GOOD, 2: config(256, 256, 128, stages=4)}, Rule.SHARED_MEMORY, (2,)),
        (f"{MOE},dtype=int8_w8a16.json", {**GOOD, 2: config(256, 128, 128, stages=3)}, Rule.SHARED_MEMORY, (2,)),
        (f"{MOE}.json", {**GOOD, 2: config(128, 256, 128, stages=4)}, Rule.SHARED_MEMORY, (2,)),
        (LINEAR, {**GOOD, 4: config(k=256)}, Rule.WRONG_SCALES, (4,)),
        (SGLANG_LINEAR, {**GOOD, 4: config(k=256)}, Rule.WRONG_SCALES, (4,)),
        (f"{MOE}.json", {**GOOD, 64: None}, Rule.VALUES, (64,)),
        (f"{MOE}.json", {**GOOD, 64: config(m=48)}, Rule.VALUES, (64,)),
        (f"{MOE}.json", {**GOOD, 64: config(m="16")}, Rule.VALUES, (64,)),
        (f"{MOE}.json", {**GOOD, 64: config(n=16.0)}, Rule.VALUES, (64,)),
        (f"{MOE}.json", {**GOOD, 64: config(n=-64)}, Rule.VALUES, (64,)),
        (f"{MOE}.json", {**GOOD, 64: config(n=float("nan"))}, Rule.VALUES, (64,)),
        (f"{MOE}.json", {**GOOD, 64: config(k=8)}, Rule.VALUES, (64,)),
        (BLOCK, {**GOOD, 64: config(k=16)}, Rule.VALUES, (64,)),
        (f"{MOE}.json", {**GOOD, 64: config(group=0)}, Rule.VALUES, (64,)),
        (f"{MOE}.json", {**GOOD, 64: config(warps=3)}, Rule.VALUES, (64,)),
        (f"{MOE}.json", {**GOOD, 64: config(warps=True)}, Rule.VALUES, (64,)),
        (f"{MOE}.json", {**GOOD, 64: config(warps=64)}, Rule.VALUES, (64,)),
        (f"{MOE}.json", {**GOOD, 64: config(stages=0)}, Rule.VALUES, (64,)),
        (f"triton_3_8_0/{MOE}.json", {**GOOD, 64: config(USE_TMA="yes")}, Rule.VALUES, (64,)),
        (BLOCK.replace("[128,128]", "[1,128]"), GOOD, Rule.VALUES, TUNED),
    ],
)
def test_a_fault_is_found_with_its_token_counts(tmp_path, name, entries, rule, tokens):
    found = broken(tmp_path, name, entries)
    assert found[rule].level is Level.FAULT
    assert found[rule].tokens == tokens


@pytest.mark.parametrize(
    ("name", "entries", "rule", "tokens"),
    [
        (BLOCK, {**GOOD, 4: config(k=256), 8: config(k=256)}, Rule.CLAMPED, (4, 8)),
        (SGLANG_LINEAR.replace("[128, 128]", "[96, 96]"), {**SHALLOW, 1: config(k=64)}, Rule.CLAMPED, (1,)),
        (f"{MOE}.json", GOOD, Rule.NO_VERSION, ()),
        (f"{MOE}.json", {"triton_version": "3.4.0", **GOOD}, Rule.OTHER_VERSION, ()),
        (f"triton_3_4_0/{MOE}.json", GOOD, Rule.OTHER_VERSION, ()),
        (f"{MOE},dtype=bf16.json", GOOD, Rule.NEVER_READ, ()),
        (f"{MOE}.json", {t: config(group=t) for t in (1, 4, 16, 64, 128, 512, 2048, 4096)}, Rule.DISTANT, ()),
        (BLOCK, dict.fromkeys(TUNED, config(n=128)), Rule.WIDE_ONLY, ()),
        (f"{MOE},dtype=int4_w4a16.json", GOOD, Rule.NO_SPLIT_K, tuple(GOOD)),
    ],
)
def test_advice_is_found_with_its_token_counts(tmp_path, name, entries, rule, tokens):
    found = broken(tmp_path, name, entries, triton="3.8")
    assert found[rule].level is Level.ADVICE
    assert found[rule].tokens == tokens
    assert audit(str(tmp_path)).holds


@pytest.mark.parametrize(
    ("name", "entries"),
    [
        (f"{MOE}.json", {1: config(), 2: config(32), 4096: config(32)}),
        (f"{MOE}.json", {**GOOD, 0: config()}),
        (LINEAR.replace("K=7168", "K=128"), dict.fromkeys(TUNED, config(k=256))),
        (f"{MOE},dtype=int4_w4a16.json", dict.fromkeys(TUNED, config(k=16, num_ctas=1, maxnreg=None, SPLIT_K=4))),
        (f"{LINEAR.partition(',dtype')[0]},dtype=fp8_w8a8_channelwise.json", {**GOOD, 64: None}),
        ("E=8,N=512,device_name=AMD_Instinct_MI300X.json", dict.fromkeys(TUNED, config(waves_per_eu=0, kpack=2))),
    ],
)
def test_what_the_engine_runs_as_it_was_tuned_is_no_fault(tmp_path, name, entries):
    write(tmp_path, name, entries)
    assert audit(str(tmp_path)).holds


def test_an_entry_clamped_by_the_kernel_is_held_to_the_clamped_tile(tmp_path):
    # 4 stages of 64 x 256 and 128 x 256 bytes would exceed a block's 227 KiB; the kernel runs half of that
    found = broken(tmp_path, BLOCK, {**GOOD, 4: config(128, 128, 256, stages=5)})
    assert Rule.CLAMPED in found
    assert Rule.SHARED_MEMORY not in found


def test_a_copy_and_a_down_file_with_other_rows_are_found(tmp_path):
    write(tmp_path, f"{MOE}.json", GOOD)
    write(tmp_path, "E=8,N=512,device_name=NVIDIA_H20.json", GOOD)
    write(tmp_path, f"triton_3_8_0/{MOE}.json", {**GOOD, 1: config(32)})
    write(tmp_path, f"triton_3_8_0/{MOE}_down.json", GOOD)
    found = audit(str(tmp_path))
    assert counts(found)[Rule.COPIED] == (2, 0)
    assert [each.tokens for each in found.findings if each.rule is Rule.DOWN_ROWS] == [(1,)]


def test_one_device_is_audited_and_the_others_are_compared_with_it(tmp_path):
    write(tmp_path, f"{MOE}.json", GOOD)
    write(tmp_path, "E=8,N=512,device_name=NVIDIA_B200.json", GOOD)
    found = audit(str(tmp_path), "H200")
    assert [file.name.device for file in found.files] == ["NVIDIA_H200"]
    assert counts(found)[Rule.COPIED] == (1, 0)


def test_a_wheel_is_read_and_names_the_triton_it_requires(tmp_path):
    write(tmp_path, f"{MOE}.json", {"triton_version": "3.4.0", **GOOD})
    wheel = tmp_path / "engine-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.write(tmp_path / f"{MOE}.json", f"engine/configs/{MOE}.json")
        file.writestr("engine/other.json", "{}")
        file.writestr("engine-1.0.dist-info/METADATA", "Name: engine\nRequires-Dist: torch==2.14.0\n")
    found = audit(str(wheel))
    assert (found.triton, found.other_files) == ("3.8", 1)
    assert counts(found)[Rule.OTHER_VERSION] == (1, 0)


def test_a_file_and_the_wheels_of_a_folder_are_audited_by_themselves(tmp_path):
    file = write(tmp_path / "triton_3_8_0", f"{MOE}.json", GOOD)
    for version in ("1.0", "2.0"):
        with zipfile.ZipFile(tmp_path / f"engine-{version}-py3-none-any.whl", "w") as wheel:
            wheel.write(file, f"engine/{BLOCK}")
            wheel.writestr("engine-1.0.dist-info/METADATA", f"Name: engine\nRequires-Dist: triton=={version}\n")
    with zipfile.ZipFile(tmp_path / "other-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("other/other.json", "{}")
    (alone,) = audit_all([str(file)])
    assert [each.name.triton for each in alone.files] == ["3.8.0"]
    found = joined(audit_all([str(tmp_path)]))
    assert len(found.files) == 3
    assert found.triton == "1.0 and 2.0"
    assert Rule.COPIED not in counts(found)  # another release is no copy
    assert {each.path.split(".whl/")[0].rpartition("/")[2][:8] for each in found.files if ".whl" in each.path} == {
        "engine-1",
        "engine-2",
    }
    with pytest.raises(UsageError, match=r"other-1\.0-py3-none-any\.whl has no tuned file"):
        audit_all([str(file), str(tmp_path / "other-1.0-py3-none-any.whl")])


def test_a_file_that_is_no_json_is_a_fault_of_its_own(tmp_path):
    (tmp_path / f"{MOE}.json").write_text('{"1": ')
    write(tmp_path, BLOCK, GOOD)
    found = audit(str(tmp_path))
    assert [each.path for each in found.findings if each.rule is Rule.UNREADABLE] == [f"{MOE}.json"]
    assert len(found.files) == 1


@pytest.mark.parametrize("source", ["no-such-package", "empty"])
def test_a_source_without_tuned_files_is_refused(tmp_path, source):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"no installed package|no tuned file"):
        audit(str(tmp_path / "empty") if source == "empty" else source)


def test_a_device_without_files_is_refused_with_the_devices_there_are(tmp_path):
    write(tmp_path, f"{MOE}.json", GOOD)
    with pytest.raises(UsageError, match="it has some for NVIDIA_H200"):
        audit(str(tmp_path), "B200")


@pytest.mark.slow(8)
def test_the_shipped_files_of_vllm_have_the_known_faults(wheel_of):
    wheel = wheel_of("vllm")
    if "0.33.0" not in wheel.name:
        pytest.skip(f"the counts are those of vllm 0.33.0, not of {wheel.name}")
    found = audit(str(wheel))
    linear = {file.path for file in found.files if file.name.kernel is Kernel.LINEAR}
    assert len([f for f in found.findings if f.rule is Rule.MISSING_KEYS and f.path in linear]) == 27
    # 272 of 338 MoE files name no Triton; 8 of these are for FlyDSL's kernels, which Triton does not compile
    assert counts(found)[Rule.NO_VERSION] == (264, 0)
    assert len([file for file in found.files if file.name.kernel is Kernel.MOE]) == 338 - 8
    assert counts(found)[Rule.CLAMPED] == (54, 337)
    assert counts(found)[Rule.WIDE_ONLY] == (11, 0)
    assert Rule.VALUES not in counts(found)


@pytest.mark.slow(8)
def test_every_shipped_file_of_sglang_is_classified(wheel_of):
    wheel = wheel_of("sglang")
    if "0.5.23" not in wheel.name:
        pytest.skip(f"the counts are those of sglang 0.5.23, not of {wheel.name}")
    found = audit(str(wheel))
    assert {file.name.engine for file in found.files} == {Engine.SGLANG}
    assert len(found.files) == 390 + 180
    assert Rule.UNREADABLE not in counts(found)
    assert Rule.VALUES not in counts(found)
    assert counts(found)[Rule.MISSING_KEYS] == (38, 0)
