"""Program of a child of `builds`: build the kernels that stand pickled on stdin, write them to a file."""

import pickle
import sys
from pathlib import Path

from gemmtune.engine.records.errors import GemmtuneError
from gemmtune.engine.tables.inductor.kernels.builds import build_here

__all__ = ["main"]


def main() -> None:
    """Build the pairs of task and config on stdin, and write names and entries to the file that is the argument."""
    wanted = pickle.load(sys.stdin.buffer)  # noqa: S301 (our parent's)
    try:
        built = [build_here(task, config) for task, config in wanted]
    except GemmtuneError as error:
        raise SystemExit(str(error)) from None
    Path(sys.argv[1]).write_bytes(pickle.dumps(built))


if __name__ == "__main__":
    main()
