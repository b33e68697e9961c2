"""Tune with the faulty space twice on one database, with a short deadline. Prints the measurements after each run.

Argument: a folder for the database.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import gemmtune as gt
from gemmtune.engine.measure import worker
from gemmtune.engine.store.database import Database

DEADLINE_SECONDS = 15.0


def main(folder: Path) -> None:
    worker._RUN_SECONDS = DEADLINE_SECONDS
    database, runs = folder / "measurements.db", []
    for _ in range(2):
        gt.tune("3x96x4096", space="faulty_cute", sampler="exhaustive", budget=5, batch=1, database=database)
        with Database.open(database) as stored:
            runs.append([[m.config.get("fault"), m.status.value, m.reason] for m in stored.measurements()])
    json.dump(runs, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
