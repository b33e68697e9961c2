from __future__ import annotations

from pathlib import Path

import pytest

TOYS = Path(__file__).parent / "campaign"


@pytest.fixture
def toy_priced(tmp_path_factory, monkeypatch):
    """The space of toy_priced.py, registered as any other distribution registers a space; its name."""
    site = tmp_path_factory.mktemp("site")
    metadata = site / "toy_priced-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-priced\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[gemmtune.spaces]\ntoy_priced = toy_priced:ToyPriced\n")
    (site / "toy_priced.py").write_text((TOYS / "toy_priced.py").read_text())
    monkeypatch.syspath_prepend(site)
    return "toy_priced"
