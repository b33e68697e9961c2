"""How tests share a machine: a file's run in one process, and those that need the GPU one after the other."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Group them for `--dist loadgroup`: a worker's bench takes half of the GPU's memory, and times what it finds."""
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            group = "gpu" if item.get_closest_marker("gpu") else item.nodeid.partition("::")[0]
            item.add_marker(pytest.mark.xdist_group(group))
