"""Files that others wrote are read whole, or refused at once."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from gemmtune.engine.io.reading import read_bytes, read_text


@pytest.mark.parametrize("read", [read_text, read_bytes])
def test_a_named_pipe_without_a_writer_is_empty_and_not_waited_for(tmp_path, read):
    os.mkfifo(tmp_path / "run.json")
    found: list[object] = []
    reader = threading.Thread(target=lambda: found.append(read(tmp_path / "run.json", "record")), daemon=True)
    reader.start()
    reader.join(10)
    assert [*map(len, found)] == [0]


def test_a_pipe_whose_writer_is_slow_is_read_to_its_end():
    outgoing, incoming = os.pipe()

    def write():
        for part in (b"first ", b"second"):
            time.sleep(0.1)
            os.write(incoming, part)
        os.close(incoming)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert read_text(Path(f"/dev/fd/{outgoing}"), "record") == "first second"
    finally:
        writer.join()
        os.close(outgoing)
