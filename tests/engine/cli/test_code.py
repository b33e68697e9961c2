"""`gemmtune show --as`: the kernel of a row as code."""

from __future__ import annotations

import pytest

from gemmtune.engine.api.code.forms import profile_commands

DECODE = "16x4096x4096:bf16:nt"
MIDDLE = "128x2880x2880:bf16:nt"
AS = ("--problem", DECODE, "--as")


def test_the_config_is_printed_to_paste_with_the_command_that_measures_it(run, tuned, row_of):
    shown = run("show", tuned / "out", *AS, "config")
    values = row_of(DECODE, tuned).choices[0].config
    pasted, command = shown.out.splitlines()
    params = ", ".join(f'"{name}": {value}' for name, value in values.items() if not name.startswith("num_"))
    assert pasted == f"triton.Config({{{params}}}, num_warps={values['num_warps']}, num_stages={values['num_stages']})"
    again = command.partition("--config ")[2].strip("'")
    assert command.startswith(f"# gemmtune measure --problem {DECODE} --space triton_mm --config '")
    assert run("measure", "--problem", DECODE, "--config", again, "--out", "own").status == 0


def test_ncu_profiles_the_kernels_of_the_program():
    assert profile_commands("my out", DECODE, ["triton_mm", "triton_sum"]).splitlines() == [
        f"gemmtune show 'my out' --problem {DECODE} --as triton > kernel.py",
        "ncu --set full --kernel-name 'regex:^(triton_mm|triton_sum)$' --launch-count 2 "
        "--export kernel python kernel.py",
    ]


def test_a_row_that_ships_the_library_has_no_form(run, refusal, tuned, row_of):
    assert row_of(MIDDLE, tuned).choices[0].space == "aten"
    ran = run("show", tuned / "out", "--problem", MIDDLE, "--as", "sass")
    refusal(ran, f"the row of {MIDDLE} runs a kernel of aten, which has no form sass; it is a library's, and has none")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((*AS, "fatbin"), "no form 'fatbin' of a kernel; known: triton, ptx, sass, ncu, config"),
        (("--as", "ptx"), "add --problem P"),
        (("--problem", DECODE), "add --as FORM, one of triton, ptx, sass, ncu, config"),
        (
            ("--problem", "16x4096x4095:bf16:nt", "--as", "ptx"),
            f"no row for 16x4096x4095:bf16:nt; did you mean {DECODE}?",
        ),
    ],
)
def test_a_wrong_row_or_form_is_refused(run, refusal, tuned, arguments, said):
    refusal(run("show", tuned / "out", *arguments), said)
