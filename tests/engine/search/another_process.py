"""What a test module's `sequence()` says in a process of its own, where hashes and threads are others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["sequence_elsewhere"]


def sequence_elsewhere(module: str) -> list[str]:
    """The lines of `sequence()` of the test module in that file."""
    script = f"""if True:
        import sys
        sys.path.insert(0, {str(Path(module).parent)!r})
        from {Path(module).stem} import sequence
        print("\\n".join(sequence()))
        """
    environment = {**os.environ, "PYTHONHASHSEED": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    told = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    return told.stdout.splitlines()
