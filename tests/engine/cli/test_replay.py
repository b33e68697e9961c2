"""`gemmtune replay`."""

from __future__ import annotations

import gemmtune as gt

DECODE = "16x4096x4096:bf16:nt"


def test_replay_json_is_the_promised_object(run, small):
    ran = run("replay", small, "--sampler", "random", "--budget", "6", "--seeds", "3", "--json")
    assert (ran.status, ran.err) == (0, "")
    record = ran.record
    assert list(record) == ["sampler", "budget", "seeds", "fraction_of_optimum", "problems"]
    assert (record["sampler"], record["budget"], record["seeds"]) == ("random", 6, 3)
    assert list(record["problems"]) == [DECODE]
    assert 0 < record["problems"][DECODE] == record["fraction_of_optimum"] <= 1
    study = gt.replay(small, "random", budget=6, seeds=3)
    assert record["fraction_of_optimum"] == study.fraction_of_optimum["random"]


def test_replay_for_a_person_ends_with_the_mean(run, small):
    lines = run("replay", small, "--sampler", "exhaustive", "--budget", "1000", "--seeds", "1").out.splitlines()
    assert lines[0] == "sampler exhaustive, budget 1000, 1 seed, batch 1, a campaign per seed: optimum / best found"
    assert [line.split() for line in lines[-2:]] == [[DECODE, "1.0000"], ["mean", "1.0000"]]
