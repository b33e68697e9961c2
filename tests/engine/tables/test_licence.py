"""Exported modules say their licence, and a table with binaries comes with those of what was compiled into them."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from gemmtune.engine.seams import registry
from gemmtune.engine.seams.exporter import Exporter
from gemmtune.engine.tables.licence import notices
from gemmtune.engine.testing.exporter_conformance import example_table


@pytest.mark.parametrize("name", registry.names(Exporter))
def test_every_exported_module_begins_with_its_licence(name):
    exporter = registry.exporter(name)
    files = exporter.export(example_table(exporter))
    modules = {file: text for file, text in files.items() if file.endswith(".py")}
    assert bool(modules) is (name not in ("vllm", "sglang"))  # which load configs with code of their own
    for text in modules.values():
        copyright_line, licence, docstring, *_ = text.splitlines()
        assert copyright_line == "# SPDX-FileCopyrightText: 2026 gemmtune authors"
        assert licence == "# SPDX-License-Identifier: Apache-2.0"
        assert docstring.startswith('"""')
    assert "NOTICE" not in files


@pytest.mark.skipif(find_spec("quack") is None, reason="quack-kernels is not installed")
@pytest.mark.parametrize(
    ("space", "titles"),
    [
        ("cute_gemv", ()),
        ("cute_gemm", ("nvidia-cutlass-operators",)),
        ("quack_gemm", ("nvidia-cutlass-operators", "quack-kernels")),
    ],
)
def test_the_notice_has_the_licence_of_each_package_that_a_space_compiles(space, titles):
    notice = notices(registry.space(space).compiled_packages)
    bsd, apache = "2. Redistributions in binary form must reproduce the above copyright", "END OF TERMS AND CONDITIONS"
    assert (bsd in notice, apache in notice) == ("nvidia-cutlass-operators" in titles, "quack-kernels" in titles)
    for title in titles:
        assert f"\n{title} " in notice
