"""Benches of models as JSON files in a campaign's folder."""

import json
from pathlib import Path

from gemmtune.engine.consumers.inductor.bench.model_bench import ModelBench
from gemmtune.engine.consumers.inductor.report.benches import bench_report
from gemmtune.engine.io.reading import parse_json, read_text
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.seams.codec import Malformed, decoded
from gemmtune.engine.store.files import write_whole

BENCH_FILE = "bench.json"
"""Name of a bench's file in a campaign's folder; files of several benches begin with `bench`, too."""
_PATTERN = "bench*.json"


def write_bench(bench: ModelBench, path: Path) -> None:
    """Write a bench, with its samples."""
    write_whole(path, (json.dumps(bench_report(bench).to_json(), indent=1, ensure_ascii=False) + "\n").encode())


def read_benches(folder: Path) -> tuple[ModelBench, ...]:
    """Return the benches of a campaign's folder in the order of their files; raises UsageError if one is no bench."""
    return tuple(read_bench(path) for path in sorted(folder.glob(_PATTERN)))


def read_bench(path: Path) -> ModelBench:
    """Return the bench of a file; raises UsageError if the file cannot be read, or is no bench."""
    content = parse_json(read_text(path, "bench"), f"bench {path}")
    try:
        return decoded(ModelBench, content, further=True)
    except Malformed as error:
        raise UsageError(f"bench {path} is no result of gemmtune bench: {error}; measure again or remove it") from None
