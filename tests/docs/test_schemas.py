"""The schemas in docs are those of the code, take what it writes, and refuse what it refuses."""

from __future__ import annotations

import inspect
import json
import re
import runpy
import tomllib
from pathlib import Path

import jsonschema
import pytest
from typer.main import get_command

from gemmtune.engine.api.plans import read_plan
from gemmtune.engine.campaign.plan_keys import campaign_template
from gemmtune.engine.cli.commands import app
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.report.progress import json_lines

DOCS = Path(__file__).parents[2] / "docs"
SCHEMAS = runpy.run_path(str(DOCS / "site/schemas.py"))
TUNING = (DOCS / "tuning.md").read_text(encoding="utf-8")
CAMPAIGN = jsonschema.Draft202012Validator(SCHEMAS["campaign"]())
LAYERS = """
[[problem]]
kind = "vllm_moe"
tokens = [1, 64]
experts = 8
top_k = 2
hidden = 4096
inter = 1792
dtype = "bf16"
weight = 32.0
"""


@pytest.mark.parametrize("name", ["campaign", "table", "events"])
def test_the_schema_s_file_is_what_the_code_says(name):
    text = (DOCS / f"schemas/{name}.schema.json").read_text(encoding="utf-8")
    assert text == SCHEMAS["files"]()[f"{name}.schema.json"], "make docs"
    jsonschema.Draft202012Validator.check_schema(json.loads(text))


def campaigns() -> list[str]:
    """Campaign files: the template, every key of it uncommented, layers of an engine, and those of the documents."""
    fences = re.compile(r"^```toml(?: title=\"campaign.toml\")?\n(.*?)^```", re.MULTILINE | re.DOTALL)
    shown = [text for page in sorted(DOCS.glob("*.md")) for text in fences.findall(page.read_text(encoding="utf-8"))]
    template = campaign_template()
    whole = re.sub(r"^# (?=\w+ = |\[\[)", "", template, flags=re.MULTILINE)
    return [template, whole, LAYERS, *(text for text in shown if "problem" in text)]


@pytest.mark.parametrize("text", campaigns())
def test_every_campaign_file_of_the_documents_is_valid(text):
    CAMPAIGN.validate(tomllib.loads(text))


@pytest.mark.parametrize(
    "text",
    [
        "bugdet = 1",
        "problems = ['16x64x64']\nbudget = 0",
        "problems = [16]",
        "problems = ['16x64x64']\nmargin = '2'",
        "problems = ['16x64x64']\nranges = { worsst = 0.1 }",
        "[[problem]]\nm = 16\nn = 64",
        "[[problem]]\nm = 16\nn = 64\nk = '64'",
        "[[problem]]\nm = 16\nn = 64\nk = 64\ntile = 3",
        "",
    ],
)
def test_a_campaign_that_tune_refuses_is_invalid(text, tmp_path):
    (tmp_path / "campaign.toml").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError):
        read_plan(tmp_path / "campaign.toml")
    assert not CAMPAIGN.is_valid(tomllib.loads(text))


def test_the_events_are_those_that_the_code_writes_and_the_page_names():
    written = set(re.findall(r'self\._write\(\s*"(\w+)"', inspect.getsource(json_lines)))
    table = TUNING.partition("| event | when | fields |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\|(.*)\|$", table, re.MULTILINE)
    fields = {name: {field for form in forms for field in form} for name, forms in SCHEMAS["EVENTS"].items()}
    assert written == fields.keys() == {name for name, _ in rows}
    named = {name: set(re.findall(r"`(\w+)`", said)) - {"done"} for name, said in rows}
    assert named == fields


def test_the_page_names_every_command_that_ends_with_status_1():
    (said,) = re.findall(r"^\| 1 \| (.*) \|$", TUNING, re.MULTILINE)
    helps = {name: each.help or "" for name, each in vars(get_command(app))["commands"].items()}
    failing = {name for name, text in helps.items() if "exit status is 1" in " ".join(text.split())}
    assert failing == {name for part in said.split(";") for name in re.findall(r"`(\w+)`", part.partition(":")[0])}
