"""The exported loader: a package of the parts that a table's rows need, which a linter passes and a re-export keeps."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gemmtune.engine.api.output_folder import write_all
from gemmtune.engine.consumers.inductor.exporter import InductorExporter
from gemmtune.engine.consumers.inductor.loader.export import loader_files
from gemmtune.engine.consumers.inductor.loader.loader_rows import parse_inductor_table
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, RangeRow, Row, Table

ROOT = Path(__file__).parents[5]
PACKAGE, FILE = "gemmtune_inductor", "inductor_table.json"
RECORDER, REPORT = "gemmtune_record", "gemmtune_report"
FULL = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8, "num_stages": 3, "num_warps": 4}
ROOMY = {**FULL, "BLOCK_M": 64, "BLOCK_N": 32}
SPLIT_K = {"warp_n": 16, "warps_n": 1, "warps_k": 4, "split_k": 1, "k_unroll": 1, "num_stages": 4, "share_a": False}
SPLIT_K |= {"use_pdl": False}
QUACK = {"tile_m": 128, "tile_n": 128, "cluster_m": 1, "cluster_n": 2, "pingpong": True, "swap_ab": False}
QUACK |= {"is_dynamic_persistent": False, "max_swizzle_size": 8}
EPILOGUES = {"chain.py", "terms.py", "graph_nodes.py"}
BINARIES, CLUSTERS = (
    {"extern.py", "binaries.py", "kernel_call.py", "binary.py"},
    {"occupancy.py", "cuda_driver.py"},
)


def choice(space, params):
    return Choice(space, Config(params), 100.0, 99.0, 101.0, 32, Evidence.MEASURED, "torch 2.13.0", "events-cold-l2")


def row(problem, params=FULL, space="triton_mm"):
    return Row(Problem.parse(problem), (choice(space, params), choice("aten", {})), None, 0.0, ())


PLAIN = (row("16x4096x4096:bf16:nt"), row("2048x4096x4096:bf16:nt", {}, "aten"))
EPILOGUE = row("16x4096x4096:bf16:nt:epilogue=silu.mul(matrix)")
RANGE = RangeRow(Problem.parse("64x96x256:bf16:nt:dynamic_m=true"), 2, 64, choice("triton_mm", FULL), ((64, 0.0),))
CUTE = row("8x96x256:bf16:nt:epilogue=relu", SPLIT_K, "cute_splitk")
CLUSTERED = row("512x512x256:bf16:nt", QUACK, "quack_gemm")
UNREAD = row("16x96x256:bf16:nt:addmm:beta=0")


def export(*rows, ranges=()):
    return InductorExporter().export(Table(catalogue.device("H200"), rows, "latency", ranges))


def modules(files, package=PACKAGE):
    return {name.partition("/")[2] for name in files if name.startswith(f"{package}/")}


def lines(files):
    """Return the lines of the package, with docstrings and empty ones."""
    return sum(len(text.splitlines()) for name, text in files.items() if name.startswith(f"{PACKAGE}/"))


@pytest.fixture
def run(probe):
    """Return a function that runs code in a process that finds the exported folder."""

    def ran(folder, code):
        (folder / "code.py").write_text(code)
        return probe(folder / "code.py", folder)

    return ran


@pytest.mark.parametrize(
    ("rows", "ranges", "epilogues", "dynamic", "binaries"),
    [
        (PLAIN, (), False, False, False),
        ((*PLAIN, row("16x96x256:bf16:nt", ROOMY)), (), True, False, False),  # a kernel with room for a cheap epilogue
        ((EPILOGUE,), (), True, False, False),
        (PLAIN, (RANGE,), False, True, False),
        ((*PLAIN, EPILOGUE, CUTE), (), True, False, True),
    ],
)
@pytest.mark.usefixtures("unbuilt")
def test_a_package_has_the_parts_of_its_rows(rows, ranges, epilogues, dynamic, binaries):
    found = modules(files := export(*rows, ranges=ranges))
    assert (found >= EPILOGUES, bool(found & EPILOGUES)) == (epilogues, epilogues)
    assert ("reader.py" in found) is epilogues
    assert ("graph_sizes.py" in found) is dynamic
    assert (found >= BINARIES, bool(BINARIES & found)) == (binaries, binaries)
    assert not CLUSTERS & found
    assert "recorder.py" not in found
    assert "class ProductFile" in files[f"{RECORDER}/__init__.py"]


@pytest.mark.usefixtures("unbuilt")
def test_a_package_has_the_parts_of_rare_rows_alone_where_it_has_such_rows():
    assert modules(export(*PLAIN, CLUSTERED)) >= CLUSTERS
    found = modules(export(*PLAIN, UNREAD))
    assert "unread_bias.py" in found
    assert "unread_bias.py" not in modules(export(*PLAIN, CUTE, CLUSTERED, ranges=(RANGE,)))


@pytest.mark.parametrize(
    ("rows", "most"), [(PLAIN, 1_607), ((*PLAIN, EPILOGUE), 2_528), ((*PLAIN, EPILOGUE, CUTE), 3_216)]
)
@pytest.mark.usefixtures("unbuilt")
def test_a_package_is_small(rows, most):
    assert lines(export(*rows)) <= most


@pytest.mark.usefixtures("unbuilt")
def test_packages_pass_the_linter_as_the_project_does(tmp_path):
    write_all(export(*PLAIN), tmp_path / "plain")
    write_all(export(*PLAIN, EPILOGUE, CUTE, ranges=(RANGE,)), tmp_path / "all")
    ruff = [str(Path(sys.executable).with_name("ruff"))]
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [*ruff, *command, "--config", str(ROOT / "pyproject.toml"), "--no-cache", "."],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout


def test_an_equal_table_gives_equal_files_and_a_changed_row_changes_no_python():
    first, second = export(*PLAIN), export(*PLAIN)
    assert first == second
    changed = export(row("16x4096x4096:bf16:nt", {**FULL, "GROUP_M": 4}), PLAIN[1])
    assert {name for name in first if changed[name] != first[name]} == {FILE, "lookup_table.json"}
    assert changed.keys() == first.keys()


@pytest.mark.usefixtures("unbuilt")
def test_no_file_needs_gemmtune():
    for name, text in export(*PLAIN, EPILOGUE, CUTE, ranges=(RANGE,)).items():
        assert name.endswith(".json") or "gemmtune.engine" not in text


@pytest.mark.slow(3, together="probes")
@pytest.mark.usefixtures("unbuilt")
@pytest.mark.parametrize("rows", [(EPILOGUE,), (CUTE,), (UNREAD,)])
def test_a_loader_without_a_part_refuses_a_table_that_needs_it(tmp_path, rows, run):
    write_all(export(*PLAIN), tmp_path)
    write_all(export(*rows), tmp_path / "other")
    code = f"import gemmtune_inductor; gemmtune_inductor.install('other/{FILE}')"
    done = run(tmp_path, code)
    assert "use the one that was exported beside the table" in done.stderr.splitlines()[-1]
    assert run(tmp_path, code.replace("other/", "")).returncode == 0


@pytest.mark.slow(1, together="probes")
def test_a_loader_serves_without_the_packages_beside_it_and_names_them_where_they_are_asked_for(tmp_path, run):
    files = export(*PLAIN)
    code = """if True:
        from types import SimpleNamespace
        from torch._inductor.virtualized import V
        import gemmtune_inductor as it
        from gemmtune_inductor.lowered import bias_of_product
        it.install(policy="ignore")
        for asked in (it.report, lambda: it.record("problems.jsonl")):
            try:
                print(asked() or "recording")
            except RuntimeError as error:
                print(error)
        it.stop_recording()
        print(it.options()["shape_padding"])
        of_addmm = SimpleNamespace(
            get_scalar=lambda _: 1, output_layout=lambda: SimpleNamespace(size=[16, 96]),
            mnk_hinted=lambda: (16, 96, 256), shapes_hinted=lambda: [[96]], strides_hinted=lambda: [[1]],
        )
        with V.set_graph_handler(SimpleNamespace(current_node=None)):
            print(bias_of_product(of_addmm)[0] or bias_of_product(of_addmm)[1])
    """
    write_all({name: text for name, text in files.items() if not name.startswith((RECORDER, REPORT))}, tmp_path)
    which = "which the export has beside this package"
    assert run(tmp_path, code).stdout.splitlines() == [
        f"a report needs gemmtune_report, {which}; compiled products by use: none",
        f"recording needs gemmtune_record, {which}",
        "False",
        "no row of this table has a bias",
    ]
    write_all(files, tmp_path)
    said = run(tmp_path, code).stdout.splitlines()
    assert said[0].startswith("no product was compiled since install")
    assert said[1:] == ["recording", "False", "vector"]
    assert json.loads((tmp_path / "problems.jsonl").read_text().splitlines()[0])["type"] == "start"


def test_parts_depend_on_the_rows_alone():
    of_table = loader_files(parse_inductor_table(export(*PLAIN)[FILE].encode()))
    assert of_table == {name: text for name, text in export(*PLAIN).items() if not name.endswith(".json")}
