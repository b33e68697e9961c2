"""A program that answers questions, a line of JSON each as are its answers: started once, for starting costs more."""

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

__all__ = ["AnsweringProcess", "NoAnswerError"]


class NoAnswerError(Exception):
    """There is none; the message says why, in words that follow the program's name."""


class AnsweringProcess:
    """Runs a program of ours while it answers. After one that broke or hung, the next question starts another.

    It may be used by one thread at a time. The program ends when its standard input does, at the latest with us.
    """

    def __init__(self, program: Path, timeout_seconds: float) -> None:
        """Nothing runs before something is asked."""
        self._command = [sys.executable, "-P", str(program)]
        self._timeout_seconds = timeout_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `close`)

    def ask(self, question: Mapping[str, object]) -> dict[str, object]:
        """What it answers.

        Raises:
            NoAnswerError: it ended, hung, or said something else.
        """
        if self._process is None:
            self._errors.seek(0)
            self._errors.truncate()
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(  # noqa: S603 (our own interpreter, our own file)
                self._command, stdin=pipe, stdout=pipe, stderr=self._errors, bufsize=0
            )
        try:
            line = self._exchange(self._process, json.dumps(question).encode() + b"\n")
            answer: dict[str, object] = json.loads(line)
        except TimeoutError:
            self._end()
            raise NoAnswerError(f"did not answer for {self._timeout_seconds:g} s") from None
        except (EOFError, BrokenPipeError):
            with suppress(subprocess.TimeoutExpired):  # it may have closed its output, and hang
                self._process.wait(self._timeout_seconds)
            status = self._end()
            raise NoAnswerError(f"ended with status {status}: {self._said()}") from None
        except json.JSONDecodeError:
            self._end()
            raise NoAnswerError(f"answered {line[:80]!r}, which is not JSON") from None
        return answer

    def close(self) -> None:
        """End it."""
        self._end()
        self._errors.close()

    def _exchange(self, process: subprocess.Popen[bytes], question: bytes) -> bytes:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(question)
        deadline, line = time.monotonic() + self._timeout_seconds, b""
        while not line.endswith(b"\n"):
            if not wait([process.stdout.fileno()], max(0.0, deadline - time.monotonic())):
                raise TimeoutError
            part = os.read(process.stdout.fileno(), 1 << 16)
            if not part:
                raise EOFError
            line += part
        return line

    def _said(self) -> str:
        """The last line of what it wrote to standard error."""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else "without a word"

    def _end(self) -> int | None:
        """Its status; None where there is none."""
        process, self._process = self._process, None
        if process is None:
            return None
        process.kill()  # it holds nothing, and its library has crashed where it ended by itself
        with process:  # closes the pipes, and waits
            pass
        return process.returncode
