"""Run the command line: `python -m gemmtune`."""

from gemmtune.engine.cli import main

if __name__ == "__main__":
    main()
