"""Softmax over rows in one kernel, written for this example, with four configs as one would write them by hand.

A program takes ROWS rows at once and goes on STEPS times. Each row is in registers whole, so it is read once.
"""

import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[
        triton.Config({"ROWS": 1, "STEPS": 1}, num_warps=4, num_stages=2),
        triton.Config({"ROWS": 1, "STEPS": 1}, num_warps=8, num_stages=2),
        triton.Config({"ROWS": 1, "STEPS": 8}, num_warps=8, num_stages=4),
        triton.Config({"ROWS": 1, "STEPS": 8}, num_warps=16, num_stages=4),
    ],
    key=["n_rows", "n_columns"],
)
@triton.jit
def softmax_kernel(
    out, x, n_rows, n_columns, COLUMNS: tl.constexpr, ROWS: tl.constexpr, STEPS: tl.constexpr, num_stages: tl.constexpr
):
    """Write the softmax of ROWS rows at a time, STEPS times."""
    columns = tl.arange(0, COLUMNS)
    for step in tl.range(0, STEPS, num_stages=num_stages):
        rows = (tl.program_id(0) * STEPS + step) * ROWS + tl.arange(0, ROWS)
        at = rows[:, None].to(tl.int64) * n_columns + columns[None, :]
        mask = (rows[:, None] < n_rows) & (columns[None, :] < n_columns)
        values = tl.load(x + at, mask=mask, other=-float("inf")).to(tl.float32)
        powers = tl.exp(values - tl.max(values, axis=1)[:, None])
        shares = powers / tl.sum(powers, axis=1)[:, None]
        tl.store(out + at, shares.to(out.dtype.element_ty), mask=mask)


class Softmax:
    """Softmax over the rows of a matrix in bf16."""

    kernel = softmax_kernel
    params = {"ROWS": (1, 2, 4, 8), "STEPS": (1, 2, 4, 8), "num_warps": (1, 2, 4, 8, 16), "num_stages": (1, 2, 3, 4)}
    cases = {
        "attention": {"rows": 32768, "columns": 1024, "weight": 4},
        "wide": {"rows": 4096, "columns": 8192},
    }
    outputs = ("out",)
    nearest = "rows"  # the table serves other numbers of rows, too

    def arguments(self, case, make):
        """Make what one launch takes; the config gives the rest."""
        shape = (case["rows"], case["columns"])
        return {
            "out": make.empty(shape),
            "x": make.normal(shape),
            "n_rows": case["rows"],
            "n_columns": case["columns"],
            "COLUMNS": triton.next_power_of_2(case["columns"]),
        }

    def grid(self, case, meta):
        """Return the programs to launch; `meta` has the arguments and the config."""
        return (triton.cdiv(case["rows"], meta["ROWS"] * meta["STEPS"]),)

    def check(self, case, config):
        """Reject what would spill at once."""
        per_thread = config["ROWS"] * triton.next_power_of_2(case["columns"]) / (32 * config["num_warps"])
        return f"{per_thread:.0f} elements per thread > 256" if per_thread > 256 else None

    def reference(self, case, arguments):
        """Return the right output."""
        return torch.softmax(arguments["x"].double(), dim=1)

    def flops(self, case):
        """Return the operations of one launch; reports show the share of the roofline."""
        return 4 * case["rows"] * case["columns"]

    def bytes(self, case):
        """Return the bytes that one launch must move; a kernel cannot be faster than these."""
        return 2 * 2 * case["rows"] * case["columns"]
