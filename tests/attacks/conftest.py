"""The command line in this process, and what an attack may end with."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from gemmtune.engine import cli


class Ran(NamedTuple):
    """Exit status and output of one command."""

    status: int
    out: str
    err: str

    def is_refusal(self) -> bool:
        """Whether it is one line on stderr and exit status 2."""
        return self.status == 2 and re.fullmatch(r"gemmtune: [^\n]+\n", self.err) is not None


@pytest.fixture
def run(tmp_path, monkeypatch, capsys) -> Callable[..., Ran]:
    """Run the command line in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str | Path) -> Ran:
        monkeypatch.setattr(sys, "argv", ["gemmtune", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        lines = captured.err.splitlines(keepends=True)
        said = "".join(line for line in lines if not line.endswith(" ...\n"))  # on a slow machine
        return Ran(ended.value.code or 0, captured.out, said)

    return command
