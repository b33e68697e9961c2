"""Fixtures that export rows, and run a probe of Inductor on an export in a process of its own."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace

import pytest

from gemmtune.engine.api.output_folder import write_all
from gemmtune.engine.consumers.inductor import exporter
from gemmtune.engine.consumers.inductor.exporter import InductorExporter
from gemmtune.engine.consumers.inductor.loader.templates import multiplied
from gemmtune.engine.records.epilogue.chain import NO_EPILOGUE, stored
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.kernel_call import RUNTIME_PACKAGES
from gemmtune.engine.tables.export import export_table
from gemmtune.engine.tables.kernels.binary import kernel_name, packed
from gemmtune.engine.testing.exporter_conformance import example_table


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Return a function that exports rows, ranges and other fields of a table, and returns the folder."""

    def export(rows=(), ranges=(), **fields):
        folder = tmp_path_factory.mktemp("export")
        write_all(
            export_table(InductorExporter(), replace(example_table(), rows=rows, ranges=ranges, **fields)), folder
        )
        return folder

    return export


@pytest.fixture
def load(monkeypatch):
    """Return a function that imports the loader of an exported folder anew, by another name, and its report with it."""
    names = {"gemmtune_report"}

    def forget():
        for name in [each for each in sys.modules if each.partition(".")[0] in names]:
            del sys.modules[name]

    def loaded(folder, name):
        names.add(name)
        forget()
        monkeypatch.syspath_prepend(folder)
        package = folder / "gemmtune_inductor"
        spec = spec_from_file_location(name, package / "__init__.py", submodule_search_locations=[str(package)])
        sys.modules[name] = loader = module_from_spec(spec)
        spec.loader.exec_module(loader)
        return loader

    yield loaded
    forget()


@pytest.fixture(scope="module")
def probed(probe):
    """Return a function that runs a probe on an export, and returns what it answers."""

    def run(name, folder, *arguments):
        done = probe(Path(__file__).with_name(name), folder, str(folder), *map(str, arguments))
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.fixture(scope="module")
def unbuilt():
    """Export CuTe kernels without compiling them: their calls are right, and their objects link nowhere."""

    def entries(wanted, _):
        return {(task, config): entry(task, config) for task, config in wanted}

    def entry(task, config):
        problem, params = multiplied(task.problem), dict(config)
        launch = {"swap_ab": False, "max_swizzle_size": 8}  # of QuACK's kernels
        launch = {**launch, **params, "cluster_size": params.get("cluster_m", 1) * params.get("cluster_n", 1)}
        call = registry.space(task.space).deployed_call(SimpleNamespace(launch=launch), task)
        layouts = f"{problem.a_layout}{problem.b_layout}"
        epilogue = stored(problem.epilogue if isinstance(problem, Problem) else NO_EPILOGUE)
        fields = {"object": packed(b"none"), "call": call, "layouts": layouts, "epilogue": epilogue}
        fields["packages"] = dict.fromkeys(RUNTIME_PACKAGES, "1.0")
        return kernel_name(task.space, b"none", call, layouts, epilogue), fields

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(exporter, "built_kernels", entries)
        yield
