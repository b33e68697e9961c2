"""The command that captures writes a campaign where there is something to tune, and says so where there is not."""

from __future__ import annotations

ONE = "GemmTunableOp_Half_NN,nn_64_32_128_ld_64_128_64\n"


def test_the_records_of_ranks_become_one_campaign(run, tmp_path):
    paths = [tmp_path / f"tunableop_untuned{rank}.csv" for rank in range(2)]
    for path in paths:
        path.write_text(ONE, encoding="utf-8")
    out = tmp_path / "problems.toml"
    done = run("capture", *map(str, paths), "--out", str(out))
    assert done.status == 0
    assert "# 32x64x128:fp16:nn, 2 runs" in out.read_text(encoding="utf-8").splitlines()


def test_a_record_with_nothing_to_tune_leaves_the_campaign_as_it_was_and_fails(run, tmp_path):
    record, out = tmp_path / "tunableop_untuned0.csv", tmp_path / "problems.toml"
    record.write_text("GemmTunableOp_double_NN,nn_64_32_128_ld_64_128_64\n", encoding="utf-8")
    done = run("capture", str(record), "--out", str(out))
    assert (done.status, out.exists()) == (1, False)
    assert "no file is written" in done.out
    assert '"written": null' in run("capture", str(record), "--out", str(out), "--json").out
