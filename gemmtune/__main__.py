"""Start the command line: `gemmtune`, or `python -m gemmtune`.

Little is imported before interrupts wait, so that Ctrl-C ends a command with one line, however early it comes.
"""

import gc
import os

__all__ = ["main"]


def main() -> None:
    """Run the command line; an interrupt is answered once its modules are imported."""
    try:
        interrupt = _hold_interrupts()
    except (KeyboardInterrupt, RuntimeError):  # Python 3.11 raises the second one while it creates an enum
        interrupt = _hold_interrupts()
        os.kill(os.getpid(), interrupt)
    from gemmtune.engine.cli import main as run

    try:
        run()
    finally:
        gc.freeze()  # Python searches for cycles as it ends, among what torch imports for more than a second


def _hold_interrupts() -> int:
    """Let interrupts wait until the command line answers them; return their number."""
    import signal

    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    return signal.SIGINT


if __name__ == "__main__":
    main()
