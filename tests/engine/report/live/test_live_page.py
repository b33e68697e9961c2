"""The page of a running campaign, and its server: real requests, without a browser."""

from __future__ import annotations

import json
import re
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from http.client import HTTPConnection
from threading import Thread

import pytest

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.measurement import Estimate, Status
from gemmtune.engine.report.live.page import live_html
from gemmtune.engine.report.live.server import LivePages
from gemmtune.engine.store.database import Database
from gemmtune.engine.testing.objective_conformance import example_measurement

NOW = datetime(2026, 11, 21, 12, 1, 5, tzinfo=UTC)
TASK = replace(example_measurement().task, space="triton_mm")


def measured(x, time_ns, space="triton_mm", status=Status.OK):
    estimate = Estimate(time_ns, time_ns, time_ns) if status is Status.OK else None
    task, at = replace(TASK, space=space), "2026-11-21T12:00:30+00:00"
    return replace(
        example_measurement(), task=task, config=Config({"x": x}), status=status, estimate=estimate, created_at=at
    )


@pytest.fixture
def folder(tmp_path):
    with Database.open(tmp_path / "measurements.db") as store:
        store.add(
            [measured(0, 9e4, "aten"), measured(1, 1e5), measured(2, 8e4), measured(3, 0, status=Status.TIMED_OUT)]
        )
    return tmp_path


def page_of(folder) -> str:
    return live_html(str(folder / "measurements.db"), folder, NOW)


def test_the_page_has_the_numbers_of_the_database_and_of_the_progress(folder):
    progress = {"done": 3, "total": 12, "seconds_left": 90.0, "at": "2026-11-21T12:01:04+00:00"}
    (folder / "progress.json").write_text(json.dumps(progress))
    page = page_of(folder)
    [row] = re.findall(r'<tr id="problem-1">(.*?)</tr>', page, re.DOTALL)
    cells = re.findall(r"<td[^>]*>(.*?)</td>", row)
    assert cells == [TASK.problem.name, "80.0", "90.0", "+12.5%", "triton_mm", "3", "1 timed_out", "-"]
    cards = re.findall(r'<div class="card"><b>(.*?)</b><span>(.*?)</span>', page)
    assert cards == [
        ("1 min 30 s left", "1 problem, 4 measurements"),
        ("+12.5%", "lead over aten so far, 0 where it leads: geometric mean of 1 problem"),
        ("4", "measured in the last minute; the last 35 s ago"),
        ("1", "failed: 1 timed_out"),
    ]
    assert "<b>3 of 12</b>" in page
    assert "width:25.000%" in page
    assert "80.0 µs, +12.5%" in page


def test_a_campaign_that_ended_or_fell_silent_says_so(folder):
    assert "<b>open</b>" in page_of(folder)
    (folder / "table.json").write_text("{}")
    assert "<b>ended</b>" in page_of(folder)
    assert 'href="report.html"' not in page_of(folder)
    (folder / "report.html").write_text("the report")
    assert 'href="report.html"' in page_of(folder)
    progress = {"done": 3, "total": 12, "seconds_left": 90.0, "at": "2026-11-21T11:59:05+00:00"}
    (folder / "progress.json").write_text(json.dumps(progress))
    assert "<b>silent for 2 min 0 s</b>" in page_of(folder)


def test_a_campaign_without_a_database_yet_is_waited_for(tmp_path):
    page = page_of(tmp_path)
    assert "Nothing to show yet" in page
    assert "setTimeout(look, 2000)" in page


@pytest.fixture
def server(folder):
    with LivePages("127.0.0.1:0", lambda: page_of(folder), {"report.html": folder / "report.html"}) as pages:
        Thread(target=pages.serve_forever, args=(0.01,), daemon=True).start()
        yield pages
        pages.shutdown()


def answer(server, path, **headers):
    with closing(HTTPConnection("127.0.0.1", server.server_port, timeout=20)) as connection:
        connection.request("GET", path, headers=headers)
        found = connection.getresponse()
        return found.status, found.read().decode(), dict(found.headers)


def test_the_server_answers_browsers_of_this_machine_and_nothing_but_its_pages(server, folder):
    assert server.url == f"http://127.0.0.1:{server.server_port}/"
    status, text, headers = answer(server, "/")
    assert (status, TASK.problem.name in text) == (200, True)
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert answer(server, "/", Host=f"localhost:{server.server_port}")[0] == 200
    assert answer(server, "/", Host="evil.example")[0] == 403
    assert answer(server, "/report.html")[0] == 404
    (folder / "report.html").write_text("the report")
    assert answer(server, "/report.html")[:2] == (200, "the report")
    assert [answer(server, path)[0] for path in ("/measurements.db", "/../measurements.db", "/.")] == [404] * 3


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("0.0.0.0:0", "ssh -L"),
        ("10.0.0.1:80", "ssh -L"),
        ("[::]:0", "ssh -L"),
        ("host:1", "no address"),
        ("8080", "no "),
    ],
)
def test_an_address_that_other_machines_see_is_refused(address, said):
    with pytest.raises(UsageError, match=said):
        LivePages(address, str, {})


def test_a_port_that_is_taken_is_named(server):
    with pytest.raises(UsageError, match="port 0 takes a free one"):
        LivePages(f"127.0.0.1:{server.server_port}", str, {})
