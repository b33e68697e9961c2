"""`python -m gemmtune.engine.cli` is `gemmtune`."""

from __future__ import annotations

from gemmtune.engine.cli import main

if __name__ == "__main__":
    main()
