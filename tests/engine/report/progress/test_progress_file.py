"""Progress of a campaign in a file, as `gemmtune status` shows it."""

from __future__ import annotations

import json

from gemmtune.engine.report.progress.progress_file import PROGRESS_FILE, Progress, keep_progress, read_progress


def test_a_campaign_that_ends_removes_its_progress(tmp_path):
    with keep_progress(tmp_path) as callback:
        callback.on_load(None, None)
        assert read_progress(tmp_path) == Progress(0, 0, None)
    assert read_progress(tmp_path) is None


def test_a_damaged_file_is_no_progress(tmp_path):
    for text in ("", "[]", "{}", json.dumps({"done": -1, "total": 2, "seconds_left": None})):
        (tmp_path / PROGRESS_FILE).write_text(text)
        assert read_progress(tmp_path) is None
