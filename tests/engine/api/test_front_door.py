"""`import gemmtune`: its public names exist, are documented, and their examples run."""

from __future__ import annotations

import doctest
import inspect
import subprocess
import sys
import typing
from importlib.metadata import version

import pytest

import gemmtune as gt

pytestmark = pytest.mark.slow(12)

OPTIONAL = ("torch", "triton", "cutlass", "ray", "optuna")
ERRORS = [
    name for name in gt.__all__ if isinstance(getattr(gt, name), type) and issubclass(getattr(gt, name), Exception)
]
DOCUMENTED = [name for name in gt.__all__ if name not in ("__version__", *ERRORS)]
_BUILDS = pytest.param("check", marks=pytest.mark.slow(1, together="probes"))


def in_a_new_process(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_gemmtune_loads_no_module_of_the_engine_and_no_optional_package():
    program = "import sys, gemmtune; print(*(n for n in sys.modules if n.startswith(('gemmtune.', {}))))"
    assert in_a_new_process(program.format(", ".join(map(repr, OPTIONAL)))).split() == []


def test_using_every_public_name_loads_no_optional_package():
    program = "import sys, gemmtune as gt; [getattr(gt, n) for n in gt.__all__]; print(*({} & set(sys.modules)))"
    assert in_a_new_process(program.format(set(OPTIONAL))).split() == []


def test_public_names_are_listed_sorted_and_typed():
    assert list(gt.__all__) == sorted(gt.__all__)
    assert set(gt.__all__) == set(dir(gt))
    assert gt.__version__ == version("gemmtune")
    with pytest.raises(AttributeError, match=r"no attribute 'tuna'; it has: .*read_table"):
        gt.tuna  # noqa: B018


@pytest.mark.parametrize("name", ERRORS)
def test_every_error_is_caught_by_the_base_class_and_has_a_sentence(name):
    error = getattr(gt, name)
    assert issubclass(error, gt.GemmtuneError)
    assert error.__doc__.endswith(".")


def test_a_wrong_argument_raises_an_error_that_gemmtune_exports():
    with pytest.raises(gt.UsageError, match="no sampler 'abacus'"):
        gt.replay("h200", sampler="abacus")
    with pytest.raises(gt.DeviceError, match="no device 'H300'"):
        gt.landscapes("H300")


@pytest.mark.parametrize("name", DOCUMENTED)
def test_docstring_states_the_duty_and_has_an_example(name):
    text = inspect.getdoc(getattr(gt, name)) or ""
    assert text[0].isupper()
    assert ">>> import gemmtune as gt" in text


@pytest.mark.parametrize("name", ["gemmtune", *(_BUILDS if each == "check" else each for each in DOCUMENTED)])
def test_examples_give_what_they_show(name, tmp_path, monkeypatch):
    """Found by import name: pytest's --doctest-modules would import each file a second time, by its path."""
    monkeypatch.chdir(tmp_path)
    documented = gt if name == "gemmtune" else getattr(gt, name)
    examples = [
        test
        for test in doctest.DocTestFinder(recurse=not inspect.ismodule(documented)).find(documented, name, globs={})
        if test.examples
    ]
    assert examples
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for example in examples:
        runner.run(example)
    assert runner.failures == 0, "see the report on stdout"


@pytest.mark.parametrize("name", [name for name in DOCUMENTED if inspect.isroutine(getattr(gt, name))])
def test_signatures_are_typed_without_any(name):
    hints = inspect.get_annotations(getattr(gt, name))
    assert "return" in hints
    assert typing.Any not in hints.values()
    assert not [hint for hint in hints.values() if "Any" in str(hint)]
