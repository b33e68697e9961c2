"""The command that captures writes a campaign where there is something to tune, and says so where there is not."""

from __future__ import annotations

import json

MIXTRAL = {
    "architectures": ["MixtralForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_local_experts": 8,
}  # fmt: skip
ONE = "GemmTunableOp_Half_NN,nn_64_32_128_ld_64_128_64\n"


def test_the_records_of_ranks_become_one_campaign(run, tmp_path):
    paths = [tmp_path / f"tunableop_untuned{rank}.csv" for rank in range(2)]
    for path in paths:
        path.write_text(ONE, encoding="utf-8")
    out = tmp_path / "problems.toml"
    done = run("capture", *map(str, paths), "--out", str(out))
    assert done.status == 0
    assert "# 32x64x128:fp16:nn, 2 runs" in out.read_text(encoding="utf-8").splitlines()


def test_a_campaign_replaces_no_file_of_another_kind(run, tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text("kept", encoding="utf-8")
    for command in (("capture", "m:f"), ("problems", "--engine", "vllm", "--model", str(tmp_path))):
        refused = run(*command, "--out", str(mine))
        assert (refused.status, f"--out {mine}: a campaign file ends in .toml" in refused.err) == (2, True)
    assert mine.read_text(encoding="utf-8") == "kept"


def test_a_record_with_nothing_to_tune_leaves_the_campaign_as_it_was_and_fails(run, tmp_path):
    record, out = tmp_path / "tunableop_untuned0.csv", tmp_path / "problems.toml"
    record.write_text("GemmTunableOp_double_NN,nn_64_32_128_ld_64_128_64\n", encoding="utf-8")
    done = run("capture", str(record), "--out", str(out))
    assert (done.status, out.exists()) == (1, False)
    assert "no file is written" in done.out
    assert '"written": null' in run("capture", str(record), "--out", str(out), "--json").out


def test_a_model_becomes_a_campaign_of_its_layers(run, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(MIXTRAL), encoding="utf-8")
    done = run("problems", "--engine", "vllm", "--model", ".", "--tp", "8")
    assert done.status == 0
    assert "E=8,N=1792,device_name=*.json" in done.out
    tuned = run("tune", "problems.toml", "--device", "H200")
    assert tuned.status == 2
    assert "nothing is recorded in space vllm_moe" in tuned.err
    assert "vllm is not installed: pip install --no-deps vllm" in tuned.err
    record = run("problems", "--engine", "vllm", "--model", ".", "--tokens", "1,64", "--json").record
    assert (record["tokens"], record["layers"][0]["runs"]) == ([1, 64], 32.0)


def test_a_model_without_such_layers_leaves_the_campaign_as_it_was(run, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({**MIXTRAL, "num_local_experts": 0}), encoding="utf-8")
    done = run("problems", "--engine", "vllm", "--model", ".")
    assert (done.status, (tmp_path / "problems.toml").exists()) == (2, False)
    assert "neither experts nor linear layers in fp8" in done.err
