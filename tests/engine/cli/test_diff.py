"""`gemmtune diff`."""

from __future__ import annotations

DECODE = "16x4096x4096:bf16:nt"
MIDDLE = "128x2880x2880:bf16:nt"
TWO = ("--problem", DECODE, "--problem", MIDDLE)


def test_diff_says_in_which_rows_two_tables_differ(run, tuned):
    table = tuned / "out/table.json"
    same = run("diff", table, table)
    assert (same.status, same.out, same.err) == (0, "no difference\n", "")
    assert run("tune", *TWO, "--sampler", "random", "--budget", "3").status == 0
    differing = run("diff", table, "out/table.json", "--json")
    assert differing.status == 1
    assert differing.record["same"] is False
    changed = {change["problem"] for kind in ("winner", "time") for change in differing.record[kind]}
    assert changed <= {DECODE, MIDDLE}
    said = run("diff", table, "out/table.json")
    assert said.status == 1
    assert run("diff", "--no-fail", table, "out/table.json").status == 0
    assert all(problem in said.out for problem in changed)
