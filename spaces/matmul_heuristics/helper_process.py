"""Run a helper program that answers one line of JSON with one line of JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path

__all__ = ["HelperError", "HelperProcess"]


class HelperError(Exception):
    """The helper gave no answer; the message is a predicate of the helper, such as `ended with status 1`."""


class HelperProcess:
    """Keeps a helper program running between calls. After it crashed or hung, the next call starts another one.

    One thread may use it at a time. The program ends when its standard input closes, at the latest with this process.
    """

    def __init__(self, program: Path, timeout_seconds: float) -> None:
        """Keep the path of the program; the first call starts it."""
        self._command = [sys.executable, "-P", str(program)]
        self._timeout_seconds = timeout_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `close`)

    def call(self, query: Mapping[str, object]) -> dict[str, object]:
        """Send a query and return the answer.

        Raises:
            HelperError: the helper ended, hung, or answered something that is not JSON.
        """
        if self._process is None:
            self._errors.seek(0)
            self._errors.truncate()
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(  # noqa: S603 (our own interpreter, our own file)
                self._command, stdin=pipe, stdout=pipe, stderr=self._errors, bufsize=0
            )
        try:
            line = self._exchange(self._process, json.dumps(query).encode() + b"\n")
            answer: dict[str, object] = json.loads(line)
        except TimeoutError:
            self._end()
            raise HelperError(f"did not answer for {self._timeout_seconds:g} s") from None
        except (EOFError, BrokenPipeError):
            with suppress(subprocess.TimeoutExpired):  # a helper may close its output, and hang
                self._process.wait(self._timeout_seconds)
            status = self._end()
            raise HelperError(f"ended with status {status}: {self._last_error()}") from None
        except json.JSONDecodeError:
            self._end()
            raise HelperError(f"answered {line[:80]!r}, which is not JSON") from None
        return answer

    def close(self) -> None:
        """End the helper if it runs."""
        self._end()
        self._errors.close()

    def _exchange(self, process: subprocess.Popen[bytes], query: bytes) -> bytes:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(query)
        deadline, line = time.monotonic() + self._timeout_seconds, b""
        while not line.endswith(b"\n"):
            if not wait([process.stdout.fileno()], max(0.0, deadline - time.monotonic())):
                raise TimeoutError
            part = os.read(process.stdout.fileno(), 1 << 16)
            if not part:
                raise EOFError
            line += part
        return line

    def _last_error(self) -> str:
        """Return the last line that the helper wrote to standard error."""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else "no message"

    def _end(self) -> int | None:
        """Kill the helper and return its exit status, or None if it did not run."""
        process, self._process = self._process, None
        if process is None:
            return None
        process.kill()  # it holds no data, and its library crashes when it ends by itself
        with process:  # closes the pipes, and waits
            pass
        return process.returncode
