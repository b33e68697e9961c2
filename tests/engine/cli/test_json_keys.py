"""Keys of `table.json` and `--json`: docs/reading-the-table.md names those that are printed, and no other."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gemmtune.engine.records.verdict import BoardVerdict, Trust
from gemmtune.engine.report.campaigns import order_report
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.landscapes.landscape_file import embedded
from gemmtune.engine.store.shared.campaigns import Added

DECODE = "16x4096x4096:bf16:nt"
PAGE = (Path(__file__).parents[3] / "docs/reading-the-table.md").read_text(encoding="utf-8")
FILE, PRINTED = (PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0] for title in ("table.json", "`--json`"))


def names(cell: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", cell))


def rows(text: str) -> list[list[str]]:
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [cells for cells in lines if cells[0] not in ("key", "command")]


def test_every_key_of_the_file_is_explained_once(tuned):
    table = json.loads((tuned / "out/table.json").read_text())
    row = table["rows"][0]
    parts = {
        "": table,
        "Keys of a row": row,
        "Keys of a choice": row["choices"][0],
        "Keys of the device": table["device"],
    }
    texts = re.split(r"^(Keys of .*):$", FILE, flags=re.MULTILINE)
    explained = {"": texts[0]} | dict(zip(texts[1::2], texts[2::2], strict=True))
    for title, record in parts.items():
        keys = [name for cells in rows(explained[title]) for name in re.findall(r"`(\w+)`", cells[0])]
        assert sorted(keys) == sorted(record), title


@pytest.fixture
def printed(run, tuned, tmp_path):
    """Printed JSON of each command, by the words that the page has for it."""
    table, database = str(tuned / "out/table.json"), str(tuned / "out/measurements.db")
    recorded = [argument for path in embedded() for argument in ("--replay", path)]
    shown, stored = run("show", table, "--json").record, run("show", database, "--json").record
    tune = run("tune", "--problem", DECODE, "--budget", "2", "--no-report", "--json").record
    status, space = (
        run("campaigns", database, "--json").record,
        run("list", "spaces", "aten", "--problem", DECODE, "--json").record,
    )
    pytest.importorskip("triton", reason="triton is not installed")
    softmax = Path(__file__).parents[3] / "docs/examples/own_kernel/softmax.py"
    check = run("check", f"{softmax}:Softmax:rows=4096,columns=8192", "--configs", "1", "--json").record
    with Database.open(tmp_path / "judged.db") as judged:
        judged.boards.add(BoardVerdict("GPU-0", "w", Trust.SEEN, "", "", ""))
    merged = run("campaigns", tmp_path / "merged.db", "merge", database, "--json").record
    return {
        "`tune`": tune,
        "each of its `tasks`": tune["tasks"][0],
        "`show` of a table": shown,
        "each of its `rows`": shown["rows"][0],
        "`show` of a database": stored,
        "each of the database's `tasks`": stored["tasks"][0],
        "`diff`": run("diff", table, table, "--json").record,
        "`export` of tables as they are": run("export", table, "--out", tmp_path, "--json").record,
        "`verify`": run("verify", table, *recorded, "--json").record,
        "`campaigns`": status,
        "each of its `problems`": status["problems"][0],
        "each of its `campaigns`": status["campaigns"][0],
        "`campaigns` with an order": order_report("pause", "a", 1).record,
        "`campaigns` with `add`": order_report("add", "a", Added(1, {})).record,
        "`campaigns` with `merge`, for each source": merged[database],
        "`campaigns` with `forget`": run("campaigns", tmp_path / "judged.db", "forget", "GPU-0", "--json").record,
        "`list` of a space for a problem": space,
        "`check`": check,
        "each of its `builds`": check["builds"][0],
        "each of its `launches`": check["launches"][0],
    }


def test_every_key_that_a_command_prints_is_on_the_page(printed):
    explained = {cells[0]: re.sub(r"\([^)]*\)", "", cells[1]) for cells in rows(PRINTED)}
    assert explained.keys() == printed.keys()
    for command, keys in explained.items():
        assert names(keys) == set(printed[command]), command
