"""Hints install an extra the way that gemmtune was installed."""

from __future__ import annotations

import json
import sys

import pytest

from gemmtune.engine.records.errors import ToolchainMissing
from gemmtune.engine.toolchain import installed


class Distribution:
    version = "1.2"

    def __init__(self, text: str | None) -> None:
        self.text = text

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return self.text


@pytest.mark.parametrize(
    ("direct", "command"),
    [
        (None, "pip install 'gemmtune[cute]==1.2'"),
        ({"url": "file://TMP/my%20tree", "dir_info": {"editable": True}}, "pip install --editable 'TMP/my tree[cute]'"),
        ({"url": "file://TMP/g", "dir_info": {}}, "pip install 'TMP/g[cute]'"),
        ({"url": "file://TMP/g-0.1.whl", "archive_info": {}}, "pip install 'TMP/g-0.1.whl[cute]'"),
        ({"url": "file://TMP/gone.whl", "archive_info": {}}, "pip install 'gemmtune[cute]==1.2'"),
        (
            {"url": "https://host/g.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "pip install 'gemmtune[cute] @ git+https://host/g.git@abc'",
        ),
        ({"url": "https://host/g.whl", "archive_info": {}}, "pip install 'gemmtune[cute] @ https://host/g.whl'"),
    ],
)
def test_a_hint_installs_from_where_gemmtune_came(monkeypatch, tmp_path, direct, command):
    for name in ("my tree", "g", "g-0.1.whl"):
        (tmp_path / name).touch()
    text = None if direct is None else json.dumps(direct).replace("TMP", str(tmp_path))
    monkeypatch.setattr(installed, "distribution", lambda name: Distribution(text))
    assert installed.install_command("cute") == command.replace("TMP", str(tmp_path))


def test_a_hint_without_an_extra_names_gemmtune_alone(monkeypatch):
    monkeypatch.setattr(installed, "distribution", lambda name: Distribution(None))
    assert installed.install_command() == "pip install gemmtune==1.2"


def test_a_missing_module_is_named_with_the_extra_that_installs_it(monkeypatch):
    monkeypatch.setattr(installed, "distribution", lambda name: Distribution(None))
    monkeypatch.setitem(sys.modules, "pandas", None)
    installed.require_extra("study", "a data frame", "json")
    with pytest.raises(ToolchainMissing, match=r"^a data frame needs pandas: pip install 'gemmtune\[study\]==1.2'$"):
        installed.require_extra("study", "a data frame", "json", "pandas")
