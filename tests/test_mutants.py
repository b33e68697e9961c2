"""tests/mutants/run.py: a mutation is one small fault of the code, drawn with a seed, and a verdict is kept."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

SCRIPT = Path(__file__).with_name("mutants") / "run.py"


@pytest.fixture(scope="module")
def script():
    before = [*sys.path]
    spec = importlib.util.spec_from_file_location("mutants_run", SCRIPT)
    module = sys.modules["mutants_run"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path[:] = before
    for name in ("mutants_run", "mutations", "copies", "reach"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("source", "faults"),
    [
        ("a < b", {"comparison (a >= b)", "boundary (a <= b)"}),
        ("a in b", {"comparison (a not in b)"}),
        ("x = 5", {"number x = 6"}),
        ("x = 0.5", {"number x = 1.0"}),
        ("x = True", {"boolean x = False"}),
        ("x = not a", {"boolean x = (a)"}),
        ("x = a and b", {"and/or x = (a or b)", "first of two x = (a)"}),
        ("x = a // b", {"arithmetic x = (a * b)"}),
        ("raise E", {"dropped raise pass"}),
        ("f(a)", {"deleted call pass"}),
        ("a.x = b", {"deleted assignment pass"}),
        ("x = min(a)", {"min/max x = max(a)"}),
        ("x = f(a, b)", {"swap args x = (f(b, a))"}),
        ("x = [a for a in b if c]", {"filter dropped x = [a for a in b if True]"}),
        ("try: pass\nexcept (A, B): pass", {"except except (A, ): pass", "except except (B, ): pass"}),
        ("try: pass\nexcept A: pass", {"except except (): pass"}),
        ("for a in b:\n if c: break", {"boolean  if (not (c)): break", "dropped guard  pass"}),
        ("def f(): return a", {"return empty def f(): return None"}),
        ("def f(): return [a]", {"return empty def f(): return []"}),
        ("'é'; x = 1", {"number 'é'; x = 2"}),
        ("import a\n'text'\nx: 'f(1, 2)'\nassert a < b\nlog.debug(1)\n__all__ = [1]\n@f(1)\ndef f(): pass", set()),
        ("raise E(f'{a < b}')", {"dropped raise pass"}),
        ("x = f(fontsize=8, indent=2, width=7)", {"number x = f(fontsize=8, indent=2, width=8)"}),
        (
            "x = f(fontsize=8 if a else b)",
            {"first of two x = f(fontsize=(8))", "number x = f(fontsize=9 if a else b)"}
            | {"boolean x = f(fontsize=8 if (not (a)) else b)"},
        ),
        ("_SHOWN = 80\n_MOST_NAMED = 3\n_END_SECONDS = 10.0\ngc.collect()\ntorch.cuda.empty_cache()", set()),
        ("SHOWN = 80", {"number SHOWN = 81"}),
        ("_COPY_SECONDS = 1e-12", {"number _COPY_SECONDS = 2e-12"}),
        ("def f(a, b_seconds=300.0, *, c_seconds=1.0): pass", set()),
        (
            "def f(a=1, b_seconds=300.0, *, c=2): pass",
            {"number def f(a=2, b_seconds=300.0, *, c=2): pass", "number def f(a=1, b_seconds=300.0, *, c=3): pass"},
        ),
        ("x = max(a, b)", {"min/max x = min(a, b)"}),
    ],
)
def test_each_kind_of_fault_is_found(script, source, faults):
    found = script.mutations(source.encode())
    assert {
        f"{each.kind} {each.applied(source.encode()).decode().splitlines()[each.line - 1]}" for each in found
    } == faults


def test_a_seed_draws_lines_of_the_source_at_most_two_per_file(script):
    paths = [f"engine/{name}.py" for name in ("statistics", "io/text_files", "records/dtype")]
    candidates = {path: script.mutants(path) for path in paths if (script.ROOT / path).exists()}
    drawn = script.drawn(candidates, 1, 40, Counter())
    assert {each.path for each in drawn} == {*candidates}
    assert set(Counter(each.path for each in drawn).values()) == {2}
    assert drawn == script.drawn(candidates, 1, 40, Counter())
    assert drawn != script.drawn(candidates, 2, 40, Counter())


def test_the_files_own_tests_come_first_and_then_those_that_name_it(script):
    found = script.near("engine/statistics.py")
    assert found[0] == "tests/engine/test_statistics.py"
    assert len(found) > 1
    assert "tests/engine/testing/test_broken_plugins.py" in script.near("engine/testing/workload_conformance.py")


SOURCE = b"""
A = 1
class C:
    b: int = 2
    @property
    def c(self):
        def inner():
            return 3
        return inner()
def d(x=4):
    return x
"""
LINES = """tests/slow.py\ts.py\tC.c
tests/slow.py\ts.py\tC.c.<locals>.inner
tests/quick.py\ts.py\tC.c
tests/other.py\ts.py\td
tests/slow.py\t\t2.5
tests/slow.py\t\t0.5
tests/quick.py\t\t0.1
tests/other.py\t\t0.2
"""


@pytest.mark.parametrize(
    ("line", "files"),
    [
        (2, ["quick", "other", "slow"]),
        (4, ["quick", "other", "slow"]),
        (6, ["quick", "slow"]),
        (8, ["slow"]),
        (9, ["quick", "slow"]),
        (10, ["other"]),
    ],
)
def test_a_line_is_judged_by_the_tests_that_reach_its_function_the_quickest_first(script, line, files):
    reach = script.Reach.of_json(json.loads(json.dumps(script.Reach.read(LINES).to_json())))
    assert reach.of("s.py", SOURCE, line) == [f"tests/{name}.py" for name in files]
    assert reach.seconds["tests/slow.py"] == 3.0


def test_a_child_process_writes_down_what_it_reaches(tmp_path):
    environment = os.environ | {
        "MUTANTS_REACH": str(tmp_path / "reach"),
        "PYTEST_CURRENT_TEST": "tests/t.py::test (call)",
    }
    environment["PYTHONPATH"] = str(SCRIPT.parent / "recording")
    module = "gemmtune.engine.records.gemm.problem"
    code = f"import mutants_recorder; from {module} import Problem; Problem.parse('1x2x3:bf16:nt')"
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    lines = (tmp_path / "reach").read_text().splitlines()
    assert "tests/t.py\tengine/records/gemm/problem.py\tProblem.parse" in lines
    assert len(lines) == len({*lines})


def judged(script, monkeypatch, tmp_path, runs):
    """Judge one mutant with a copy whose pytest answers `runs`: status, failing tests and output of each."""
    answers = iter(runs)
    copy = SimpleNamespace(tree=script.ROOT, write=lambda *_: None, tests=lambda *_: next(answers))
    run = script.Run(SimpleNamespace(out=tmp_path / "out.json", unchanged=tmp_path / "none", limit=1, patience=1))
    copies = script.queue.Queue()
    copies.put(copy)
    mutant = script.mutants("engine/statistics.py")[0]
    run.judge(mutant, copies)
    run.judge(mutant, copies)  # a verdict stands: nothing runs again
    assert next(answers, None) is None
    return json.loads((tmp_path / "out.json").read_text())["mutants"][mutant.key], run


FAILS, PASSES = (1, ["tests/t.py::test"], ""), (0, [], "")


@pytest.mark.parametrize(
    ("runs", "verdict", "by"),
    [
        ([FAILS, FAILS, PASSES], "killed", "tests/t.py::test"),
        ([FAILS, PASSES, PASSES], "survived", None),  # by chance
        ([FAILS, FAILS, FAILS, PASSES], "survived", None),  # on unchanged source too
        ([(None, [], "")], "killed", "the time limit"),
        ([(4, [], "a conftest does not import")], "killed", "a conftest does not import"),
    ],
)
def test_a_verdict_stands_on_a_test_that_fails_for_the_mutant_alone(
    script, monkeypatch, tmp_path, capsys, runs, verdict, by
):
    note, run = judged(script, monkeypatch, tmp_path, runs)
    assert (note["verdict"], note.get("by")) == (verdict, by)
    assert "statistics" in run.table([*run.kept["mutants"]])
