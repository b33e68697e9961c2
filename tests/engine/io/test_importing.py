from __future__ import annotations

import re
from uuid import uuid4

import pytest

from gemmtune.engine.io.importing import imported
from gemmtune.engine.records.errors import UsageError

ENDS = {
    "def build(:": "SyntaxError: invalid syntax ({}, line 1)",
    "def build():\nreturn 1": "IndentationError: expected an indented block after function definition on line 1 ({}, l",
    "\n1 / 0": "ZeroDivisionError: division by zero ({}, line 2)",
    "assert 1 == 2, 'head size'": "AssertionError: head size ({}, line 1)",
    "import sys\nsys.exit(3)": "SystemExit: 3 ({}, line 2); put what runs as a program below",
    "raise SystemExit(0)": "SystemExit: 0 ({}, line 1)",
    "import warnings\nwarnings.simplefilter('error')\nwarnings.warn('old')": "UserWarning: old ({}, line 3)",
    "class Mine(BaseException): ...\nraise Mine('x')": "Mine: x ({}, line 2)",
    "class Mine(Exception):\n    __str__ = None\nraise Mine": "Mine ({}, line 3)",
    "def f(): f()\nf()": "RecursionError: maximum recursion depth exceeded ({}, line 1)",
    "input()": "({}, line 1)",
    "open('nowhere/at/all')": "FileNotFoundError: [Errno 2] No such file or directory: 'nowhere/at/all' ({}, line 1)",
    "import nowhere_at_all": "ModuleNotFoundError: No module named 'nowhere_at_all' ({}, line 1)",
    "import json\njson.loads('{')": "({}, line 2)",
    "raise AssertionError('Torch not compiled with CUDA enabled')": "move what needs the GPU into build()",
}


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write a module with this text under a name of its own, and return the name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(text: str) -> str:
        name = f"ending_{uuid4().hex}"
        (tmp_path / f"{name}.py").write_text(text)
        return name

    return write


@pytest.mark.parametrize(("text", "said"), ENDS.items(), ids=range(len(ENDS)))
def test_a_module_that_fails_is_refused_with_its_reason_and_its_line(module, text, said):
    name = module(text)
    with pytest.raises(UsageError, match=re.escape(said.format(f"{name}.py"))) as refused:
        imported(f"{name}:build")
    assert str(refused.value).startswith(f"cannot import {name}:build: ")


@pytest.mark.parametrize("text", ["def f(:", "x = 1\nraise SystemExit(0)"])
def test_the_line_is_that_of_the_users_module_that_failed(module, text):
    below = module(text)
    name = module(f"import {below}")
    with pytest.raises(UsageError, match=rf"\({below}.py, line {1 + text.count(chr(10))}\)"):
        imported(f"{name}:build")


def test_an_absent_module_and_an_absent_name_are_no_failure_of_code(module):
    name = module("x = 1")
    for path, said in (("nowhere_at_all:x", "No module named 'nowhere_at_all'"), (f"{name}:y", "has no attribute 'y'")):
        with pytest.raises(UsageError, match=f"cannot import {path}: .*{said}$"):
            imported(path)


def test_ctrl_c_while_a_module_is_imported_stays_ctrl_c(module):
    with pytest.raises(KeyboardInterrupt):
        imported(f"{module('raise KeyboardInterrupt')}:build")
