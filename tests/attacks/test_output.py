"""Hostile outputs: full disks, closed streams, poor encodings, escape sequences, and broken plug-ins."""

from __future__ import annotations

import errno
import io
import json
import os
import sys
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gemmtune as gt
from gemmtune.engine.io.printing import print_json, print_notice, print_text, silence, visible
from gemmtune.engine.records.errors import ContractError
from gemmtune.engine.report.layout import Grid, Report
from gemmtune.engine.report.progress.json_lines import EventFile
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.exporter import Exporter
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.tables.export import export_table

DECODE = "16x4096x4096:bf16:nt"
TUNE = ("tune", "--problem", DECODE, "--sampler", "random", "--budget", "3")
FILES = ["inductor", "measurements.db", "summary.txt", "table.json"]


def stream(encoding: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding)


def written(to: io.TextIOWrapper) -> str:
    to.flush()
    buffer: Any = to.buffer
    return buffer.getvalue().decode(to.encoding)


# Characters


@given(st.text())
def test_a_visible_text_moves_no_cursor(text):
    shown = visible(text)
    assert all(character.isprintable() or character == "\n" for character in shown)
    assert visible(shown) == shown
    assert shown == text or not text.isprintable()


def test_escape_sequences_are_shown():
    assert visible("a\x1b[31mb\u202ec\x9bd\r\x07") == r"a\x1b[31mb\u202ec\x9bd\r\x07"
    grid = Grid({"name": ["\x1b]0;title\x07"]})
    assert "\x1b" not in Report({}, [grid, "\x1b[2J"]).to_text()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437", "utf-8"])
def test_text_and_json_are_printed_in_any_encoding(monkeypatch, encoding):
    monkeypatch.setattr(sys, "stdout", stream(encoding))
    record = {"name": "漢 é µ \x1b \x9b \ud800", "time": "≤ 1 µs"}
    print_json(record)
    assert json.loads(written(sys.stdout)) == record
    print_text("───  ≤ 1 µs 漢")
    last = written(sys.stdout).splitlines()[-1]
    assert last == {"ascii": r"---  <= 1 us \u6f22", "latin-1": r"---  <= 1 us \u6f22"}.get(encoding, last)


def test_a_notice_is_one_line_that_ends(monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream("utf-8"))
    print_notice("a\nb\x1b" + "c" * 10**6)
    text = written(sys.stderr)
    assert text.startswith(r"a b\x1bccc")
    assert text.count("\n") == 1
    assert len(text) < 5000


# Streams that fail


class Full(io.StringIO):
    """A stream on a full disk: what is written stays in its buffer."""

    def flush(self):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def full(monkeypatch):
    """Replace a standard stream by one on a full disk."""
    return lambda name: monkeypatch.setattr(sys, name, Full())


def test_a_full_disk_at_stdout_is_an_error_and_at_stderr_none(full):
    full("stdout")
    with pytest.raises(OSError, match="No space left"):
        print_text("x")
    silence()
    print_text("nobody hears")
    full("stderr")
    print_notice("x")
    print_notice("nobody hears")


def test_a_campaign_with_a_full_stdout_is_complete_and_ends_with_one_line(run, full, tmp_path):
    full("stdout")
    ran = run(*TUNE)
    assert (ran.status, ran.err.splitlines()[-1:]) == (
        2,
        ["gemmtune: cannot write the output: No space left on device"],
    )
    assert {path.name for path in (tmp_path / "out").iterdir()} >= set(FILES)


def test_a_closed_stdout_is_an_error(run, monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert run("doctor", "--json").err == "gemmtune: cannot write the output: Bad file descriptor\n"


def test_a_campaign_goes_on_when_nobody_hears_its_notices_and_events(run, full, tmp_path):
    full("stderr")
    assert run(*TUNE, "--events", "/dev/full").status == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} >= set(FILES)


def test_a_full_disk_ends_the_events_with_one_notice(capsys):
    with EventFile(Path("/dev/full")) as events:
        for _ in range(3):
            events.on_notice("x" * 10**5)
    [line] = capsys.readouterr().err.splitlines()
    assert line == "events are no longer written to /dev/full: No space left on device; the campaign goes on"


def test_escape_sequences_of_a_landscape_do_not_reach_the_terminal(run, tmp_path):
    (tmp_path / "a.csv").write_text("x,time_us,status,problem.q\n1,5,ok,\x1b[31m\n2,4,ok,\x1b[31m\n", encoding="utf-8")
    ran = run("compare", "a.csv", "--sampler", "random", "--budget", "2", "--seeds", "1")
    assert (ran.status, "\x1b" in ran.out, r"q=\x1b[31m" in ran.out) == (0, False, True)


# Broken plug-ins


class Failing(Exporter):
    """Fails as a third party's exporter may."""

    def export(self, table):
        raise KeyError("rows")


class Wrong(Exporter):
    """Returns what no file can hold."""

    def export(self, table):
        return {"a": 1}


class Shy(Exporter):
    """Cannot be created."""

    def __init__(self):
        raise RuntimeError("no licence")

    def export(self, table):
        return {}


class Escaping(Exporter):
    """Names a file outside its folder."""

    def export(self, table):
        return {"fine.json": "{}", "../table.json": "gone"}


class Exiting(Exporter):
    """Ends the process."""

    def export(self, table):
        sys.exit("goodbye")


class Misnaming(Exporter):
    """Names its space without a tuple, as by a forgotten comma."""

    spaces = "triton_mm"

    def export(self, table):
        return {}


@pytest.fixture
def register(monkeypatch):
    """Add entry points to those that are installed: name to `module:attribute`."""
    installed = entry_points

    def add(group: str, points: dict[str, str]) -> None:
        extra = [EntryPoint(name, value, group) for name, value in points.items()]
        found = EntryPoints(
            [*(point for group in installed().groups for point in installed().select(group=group)), *extra]
        )
        monkeypatch.setattr(registry, "entry_points", lambda: found)

    return add


BROKEN = {
    "nowhere.at.all:Exporter": "exporter 'broken 0' (nowhere.at.all:Exporter of an unknown package) cannot be loaded",
    f"{__name__}:Failing": "Failing is broken: KeyError: 'rows'",
    f"{__name__}:Wrong": "Wrong is broken: it returned no texts by name",
    f"{__name__}:Shy": "cannot be loaded: RuntimeError: no licence (",
    f"{__name__}:DECODE": "is not a subclass of Exporter",
    f"{__name__}:Escaping": "Escaping is broken: '../table.json' is not a path of plain names",
    f"{__name__}:Exiting": "Exiting is broken: SystemExit: goodbye",
    f"{__name__}:Misnaming": "is broken: spaces='triton_mm' is not a tuple of names",
}


def test_broken_exporters_are_named_and_the_others_write(run, register, tmp_path):
    register("gemmtune.exporters", {f"broken {number}": value for number, value in enumerate(BROKEN)})
    ran = run(*TUNE, "--portfolio")
    assert ran.status == 2
    notes = [line for line in ran.out.splitlines() if line.startswith("not exported to ")]
    assert len(notes) == len(BROKEN)
    for number, (note, said) in enumerate(zip(notes, BROKEN.values(), strict=True)):
        assert note.startswith(f"not exported to broken {number}: ")
        assert said in note
    assert {path.name for path in (tmp_path / "out").iterdir()} >= set(FILES)
    assert (tmp_path / "out/inductor/inductor_table.json").exists()
    refused = run("export", "out/table.json", "--to", "broken 1")
    assert refused.is_refusal(), refused.err


def test_the_table_reports_the_exporter_that_failed():
    with pytest.raises(ContractError, match=r"Failing is broken: KeyError: 'rows'"):
        export_table(Failing(), gt.testing.example_table())


def test_a_plug_in_named_like_another_is_refused_and_both_are_named(register):
    register("gemmtune.samplers", {"transfer": "elsewhere:Transfer"})
    with pytest.raises(ContractError, match=r"two samplers are named 'transfer': .*\(gemmtune\) and else"):
        registry.sampler("transfer")
    assert registry.names(Sampler).count("transfer") == 1
