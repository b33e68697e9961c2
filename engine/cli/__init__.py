"""The command line: the only reader of the terminal and of environment variables."""

import errno
import gc
import shlex
import signal
import sys

from gemmtune.engine.cli.stopping import SIGNALS, exits_raised, stoppable
from gemmtune.engine.io.blame import account, line_of
from gemmtune.engine.io.printing import print_notice, silence
from gemmtune.engine.records.errors import GemmtuneError, Stopped

_RESUMED = ("tune", "measure", "sweep", "verify", "campaigns", "record", "merge")
"""Commands that keep what they did when they are stopped, in a database."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EBADF)
"""Errors of a full disk or a closed output, whoever writes."""
_NO_MEMORY = ("failed to map segment from shared object", "Cannot allocate memory")
"""Parts of what the linker and the system say where there is no memory for a library or a process."""
_BUG = 70
"""Exit status where gemmtune's own code is wrong (EX_SOFTWARE); 1 is an answer, such as that rows differ."""
_OBJECTS_PER_COLLECTION = 200_000
"""Further objects in memory that start Python's search for cycles."""


def main() -> None:
    """Run the command line; end a wrong use with one line on stderr and status 2, a bug with its traceback and 70."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until the imports are done
    gc.set_threshold(_OBJECTS_PER_COLLECTION, 20, 50)  # records hold no cycles, and searching for them takes time
    try:
        from gemmtune.engine.cli import commands

        with exits_raised(), stoppable():
            status = commands.run(sys.argv[1:])
    except Stopped as stopped:
        command = shlex.join(["gemmtune", *sys.argv[1:]])
        kept = "nothing is kept; to start again"
        if next((each for each in sys.argv[1:] if each != "--quiet"), "") in _RESUMED:
            kept = "what was measured is kept; to go on where it was"
        print_notice(f"gemmtune: stopped{_where(stopped)}; {kept}: {command}")
        status = 128 + stopped.signal
    except BaseException as error:
        reason = _reason(error) or (error.__cause__ and _reason(error.__cause__))  # typer puts Abort before some
        if not reason and not isinstance(error, Exception):
            raise
        status = 2 if reason else _BUG
        if reason:
            print_notice(f"gemmtune: {reason}")
        else:
            sys.excepthook(type(error), error, error.__traceback__)
    silence()
    sys.exit(status)


def _where(stopped: Stopped) -> str:
    """Return the place of code that is not gemmtune's, where a signal found it at work."""
    from gemmtune.engine.seams import registry

    place = line_of(stopped, registry.packages())
    return f" in {place}" if place else ""


def _reason(error: BaseException) -> str:
    """Return why a command ended that nobody meant to end so; empty where gemmtune's own code is wrong."""
    from gemmtune.engine.seams import registry

    packages = registry.packages()
    place = line_of(error, packages)
    if isinstance(error, GemmtuneError):
        return f"{error} ({place})" if place else str(error)
    is_full = isinstance(error, OSError) and error.errno in _FULL
    if place and not is_full:
        return f"code that is not gemmtune's failed: {account(error, packages)}; correct it there"
    if isinstance(error, MemoryError) or any(part in str(error) for part in _NO_MEMORY):
        return f"memory ran out ({account(error)}): raise its limit (ulimit -v), or free some"
    if isinstance(error, OSError):
        return f"{error.filename or 'cannot write the output'}: {error.strerror or error}"
    return ""
