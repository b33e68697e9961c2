"""The command line: the only reader of the terminal and of environment variables."""

import gc
import shlex
import signal
import sys

from gemmtune.engine.cli.stopping import SIGNALS, stoppable
from gemmtune.engine.io.blame import STOPS, account, place_of
from gemmtune.engine.io.printing import print_notice, silence
from gemmtune.engine.records.errors import GemmtuneError, Stopped

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
    except Stopped as stopped:
        command = shlex.join(["gemmtune", *sys.argv[1:]])
        kept = "nothing is kept; to start again"
        if sys.argv[1:2] and sys.argv[1] in _RESUMED:
            kept = "what was measured is kept; to go on where it was"
        print_notice(f"gemmtune: stopped; {kept}: {command}")
        status = 128 + stopped.signal
    except STOPS:
        raise
    except BaseException as error:
        reason = _reason(error)
        if not reason:
            raise
        status = _refused(reason)
    silence()
    sys.exit(status)


def _reason(error: BaseException) -> str:
    """Return why a command ended that nobody meant to end so; empty where gemmtune's own code is wrong."""
    from gemmtune.engine.seams import registry

    packages = registry.packages()
    if place_of(error, packages):
        return f"code that is not gemmtune's failed: {account(error, packages)}; correct it there"
    if isinstance(error, OSError):  # a full disk, or an output that is closed
        return f"{error.filename or 'cannot write the output'}: {error.strerror or error}"
    return ""


def _refused(reason: str) -> int:
    print_notice(f"gemmtune: {reason}")
    return 2
