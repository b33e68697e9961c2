"""The lines by which torch itself reads `lookup_table.json`, as docs/deploying.md has them, on the CPU."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gemmtune.engine.api.output_folder import write_all
from gemmtune.engine.consumers.inductor.exporter import InductorExporter
from gemmtune.engine.testing.exporter_conformance import example_table

pytestmark = pytest.mark.slow(2, together="probes")

DEPLOYING = Path(__file__).parents[5] / "docs/deploying.md"
BEFORE = "import torch\nown = model = torch.nn.Linear(64, 32)\n"
BEHIND = """
x = torch.randn(4, 64)
same = torch.allclose(model(x), own(x), atol=1e-5)
handler = virtualized.V.choices
print(json.dumps([same, type(handler).__name__, config.lookup_table.table]))
"""


def test_the_lines_of_the_documents_compile_a_model_with_the_table(tmp_path, probe):
    files = InductorExporter().export(example_table())
    write_all(files, tmp_path)
    (lines,) = re.findall(r"```python no-run\n(.*?)```", DEPLOYING.read_text(encoding="utf-8"), re.S)
    assert "lookup_table.json" in lines
    (tmp_path / "model.py").write_text(BEFORE + lines + BEHIND)
    done = probe(tmp_path / "model.py", tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    table = json.loads(files["lookup_table.json"])
    assert table
    assert json.loads(done.stdout.splitlines()[-1]) == [True, "LookupTableChoices", table]
