"""Tune products with epilogues and judge the table. Usage: run.py --out FOLDER [--gpus 2] [--minutes 6]."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "scaled"))

from deployed import main  # noqa: E402 (it is shared with the scaled products)

if __name__ == "__main__":
    main(__doc__.splitlines()[0], HERE, "triton_mm", sweep=40)
