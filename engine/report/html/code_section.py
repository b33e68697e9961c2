"""Section on the kernels that ship as code: the command that prints each."""

import shlex

from gemmtune.engine.records.table import Row
from gemmtune.engine.records.workload import baseline_words
from gemmtune.engine.report.campaign_record import CampaignRecord
from gemmtune.engine.report.html.page import Cell, Link, Section, Sheet


def code(record: CampaignRecord) -> Section:
    """List the command that prints each kernel that ships."""
    rows = [(row, f"code-{place + 1}") for place, row in enumerate(record.table.rows) if _is_kernel(row)]
    if not rows:
        words = baseline_words(row.problem for row in record.table.rows)
        return Section("Code", f"Every row ships {words}: no other kernel is to be printed.")
    named = ((row.problem.name, row.choices[0].space) for row, _ in rows)
    command = ("gemmtune", "show", "table.json", "--problem")
    cells = [[problem, space, shlex.join([*command, problem, "--as", "config"])] for problem, space in named]
    text = (
        "Run a row's command in the folder of table.json to print its config as source to paste, and the command that "
        "measures it again. A Triton kernel is also had as triton, a program that launches and checks it, as ptx, as "
        "sass, and as ncu, the commands that profile it."
    )
    headers = ("problem", "ships", "command")
    sheet = Sheet(headers, cells, headers, ids=[name for _, name in rows], tip=("command",))
    return Section("Code", text, sheet=sheet, fold="Commands")


def code_links(record: CampaignRecord) -> list[Cell]:
    """Return a link per row of the table to its command; a dash where the vendor library ships."""
    rows = enumerate(record.table.rows)
    return [Link("code", f"#code-{place + 1}") if _is_kernel(row) else "-" for place, row in rows]


def _is_kernel(row: Row) -> bool:
    return bool(row.choices[0].config) and row.choices[0].space != row.problem.baseline_space
