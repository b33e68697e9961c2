"""The notebook runs from its first cell to its last, and needs nothing but the public names."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

NOTEBOOK = Path(__file__).parents[2] / "docs/examples/plugins.ipynb"
RUN = """
import ast, json, sys
for cell in json.load(open(sys.argv[1]))["cells"]:
    if cell["cell_type"] == "code":
        exec(compile("".join(cell["source"]), "cell", "exec"), globals())
kinds = [gt.Sampler, gt.Objective, gt.Pruner, gt.Exporter, gt.Space]
print(study.summary())
assert [len(kind.__subclasses__()) > 0 for kind in kinds] == [True] * 5
"""  # __main__ has no file then, as in a notebook


def test_five_kinds_of_plug_ins_are_defined_and_used_in_a_notebook(tmp_path: Path):
    code = "".join(
        "".join(c["source"]) + "\n" for c in json.loads(NOTEBOOK.read_text())["cells"] if c["cell_type"] == "code"
    )
    assert re.findall(r"^\s*(?:import|from) .*", code, re.MULTILINE) == ["import gemmtune as gt"]
    assert "engine" not in code
    ran = subprocess.run(
        [sys.executable, "-c", RUN, str(NOTEBOOK)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "Neighbours" in ran.stdout
    lines = (tmp_path / "exported/Markdown/table.md").read_text().splitlines()
    assert (len(lines), lines[0]) == (3, "| problem | config |")
