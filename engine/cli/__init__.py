"""The command line: the only reader of the terminal and of environment variables."""

import gc
import shlex
import signal
import sys

from gemmtune.engine.cli.stopping import SIGNALS, Stopped, stoppable
from gemmtune.engine.io.printing import print_notice, silence
from gemmtune.engine.records.errors import GemmtuneError

__all__ = ["main"]

_RESUMED = ("tune", "record", "verify", "merge")
"""Commands that keep what they did when they are stopped, in a database."""
_OBJECTS_PER_COLLECTION = 200_000
"""Further objects in memory that start Python's search for cycles."""


def main() -> None:
    """Run the command line; end a wrong use with one line on stderr and exit status 2."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until the imports are done
    gc.set_threshold(_OBJECTS_PER_COLLECTION, 20, 50)  # records hold no cycles, and searching for them takes time
    from gemmtune.engine.cli import commands

    try:
        with stoppable():
            status = commands.run(sys.argv[1:])
    except GemmtuneError as error:
        status = _refused(str(error))
    except OSError as error:  # a full disk, or an output that is closed
        name = f"{error.filename}: " if error.filename else "cannot write the output: "
        status = _refused(f"{name}{error.strerror or error}")
    except Stopped as stopped:
        command = shlex.join(["gemmtune", *sys.argv[1:]])
        kept = "nothing is kept; to start again"
        if sys.argv[1:2] and sys.argv[1] in _RESUMED:
            kept = "what was measured is kept; to go on where it was"
        print_notice(f"gemmtune: stopped; {kept}: {command}")
        status = 128 + stopped.signal
    silence()
    sys.exit(status)


def _refused(reason: str) -> int:
    print_notice(f"gemmtune: {reason}")
    return 2
