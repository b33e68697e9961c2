"""Run commands on hostile campaigns, landscapes, tables and arguments: a right answer, or one line and exit status 2.

hostile_input.py --cases N [--seed S] [--json FILE]

Each case damages a good file: one value replaced by a hostile one (tables are signed again), bytes flipped, removed or
repeated. A fork of this process, which has imported the command line, runs a command on it, with a time limit.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from gemmtune.engine import cli
from gemmtune.engine.cli import commands  # noqa: F401 (imported before the forks)
from gemmtune.engine.store.landscapes.landscape_file import embedded, read_landscapes, write_landscapes

FOREIGN = Path(__file__).parents[2] / "tests/engine/store/landscapes/foreign"
SECONDS, MOST_BYTES = 60, 500 * 2**20
"""Time and memory that a case may take."""
NUMBERS = ["0", "-1", "1.5", "1e308", "1e999", "5e-324", "NaN", "-Infinity", str(2**31), str(2**63), "9" * 401]
NUMBERS += ["9" * 5000, "1_0", "0x10"]
TEXTS = ["", " ", "x", "1", "٣", "漢", "\x1b[31m", "\u202e", "$x^{$", "\0", "a,b;c", "../..", "-", "x" * 5000]
RAW = [*NUMBERS, *map(json.dumps, TEXTS), '"\\ud800"', "null", "true", "[]", "{}", "[[1]]", '{"m": 1}', "[" * 99_999]
CAMPAIGN = """
space = ["triton_mm"]
sampler = "random"
budget = 3
seed = 0
batch = 2
seconds = 3600
margin = 0.02
regret = 0.001
portfolio = { worst = 0.02, mean = 0.005 }
problems = ["16x4096x4096:bf16:nt"]
[[problem]]
m = [128]
n = 2880
k = 2880
dtype = "bf16"
layout = "nt"
weight = 20
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    chance, began = random.Random(given.seed), time.monotonic()
    report = {"cases": 0, "status": Counter(), "most_mb": 0, "most_seconds": 0.0, "wrong": []}
    with tempfile.TemporaryDirectory(prefix="gemmtune-hostile-") as folder, contextlib.chdir(folder):
        kinds = prepare()
        while report["cases"] < given.cases:
            name, hostile, command = chance.choice(kinds)
            content = hostile(chance)
            Path(name).write_bytes(content)
            judge(name, content, chance.choice(command).split(), report)
    report["seconds"] = round(time.monotonic() - began, 1)
    text = json.dumps(report, indent=2)
    if given.json:
        given.json.write_text(text + "\n")
    print(text)
    return 1 if report["wrong"] else 0


def prepare() -> list[tuple[str, Callable[[random.Random], bytes], list[str]]]:
    """Write good files; return a file's name, the maker of its hostile content, and commands that read it."""
    [landscape] = [x for x in read_landscapes(embedded("triton_mm")[0]) if x.name == "16x4096x4096:bf16:nt"]
    write_landscapes("good.csv", [landscape])
    lines = Path("good.csv").read_text().splitlines(keepends=True)[:30]
    Path("good.csv").write_text("".join(lines))
    replayed = f"--replay {embedded('triton_mm')[0]} --replay {embedded('aten')[0]}"
    assert run(["tune", "--problem", "16x4096x4096:bf16:nt", "--budget", "9", "--ranges", "--no-report"])[0] == 0
    table = Path("out/table.json").read_text()
    searched = "--budget 3 --no-report --sampler random --out searched"
    of_landscape = ["replay {} --budget 3 --seeds 2 --sampler random", f"tune --replay {{}} {searched} --device H200"]
    of_table = ["show {}", "show {} --json", "export {}", "export {} --to cute", "diff {} out/table.json"]
    of_table += [f"verify {{}} --out verified {replayed}", "explain {}"]
    return [
        ("campaign.toml", lambda chance: damaged(CAMPAIGN, chance, toml_value), [f"tune {{}} {searched}"]),
        ("hostile.csv", lambda chance: damaged("".join(lines), chance, csv_value), of_landscape),
        ("hostile.csv.gz", lambda chance: zipped(damaged("".join(lines), chance, csv_value), chance), of_landscape),
        ("cache.json", foreign("kernel_tuner_cache.json"), of_landscape[:1]),
        ("results.json", foreign("t4_results.json"), of_landscape[:1]),
        ("hostile.json", lambda chance: damaged(table, chance, table_value), of_table),
    ]


def foreign(name: str) -> Callable[[random.Random], bytes]:
    text = (FOREIGN / name).read_text(encoding="utf-8")
    return lambda chance: damaged(text, chance, json_value)


def damaged(text: str, chance: random.Random, replace_value: Callable[[str, random.Random], str]) -> bytes:
    """Return the text with a value replaced, or with damaged bytes."""
    if chance.random() < 0.7:
        return replace_value(text, chance).encode(errors="surrogatepass")
    content = bytearray(text.encode())
    for _ in range(chance.choice([1, 1, 5, 50])):
        start = chance.randrange(len(content))
        part = slice(start, start + chance.choice([1, 1, 10, 1000]))
        content[part] = chance.choice([b"", chance.randbytes(3), content[part] * 2, bytes(content[part])[::-1]])
        content = content or bytearray(b" ")
    return bytes(content)


def toml_value(text: str, chance: random.Random) -> str:
    lines = text.splitlines()
    number = chance.choice([number for number, line in enumerate(lines) if "=" in line])
    lines[number] = f"{lines[number].partition('=')[0]}= {chance.choice(RAW)}"
    return "\n".join(lines)


def csv_value(text: str, chance: random.Random) -> str:
    rows = [line.split(",") for line in text.splitlines()]
    row = chance.choice(rows)
    column = chance.randrange(len(row))
    hostile = chance.choice([*NUMBERS, *TEXTS]).replace('"', "'")
    for each in rows[1:] if chance.random() < 0.5 and row is not rows[0] else [row]:
        each[min(column, len(each) - 1)] = f'"{hostile}"'
    return "\n".join(map(",".join, rows))


def json_value(text: str, chance: random.Random) -> str:
    values = list(re.finditer(r'(?<=: )(?:"[^"\n]*"|[^\s,{}\[\]]+)|"[^"\n]+"(?=:)', text))
    found = chance.choice(values)
    return text[: found.start()] + chance.choice(RAW) + text[found.end() :]


def table_value(text: str, chance: random.Random) -> str:
    """Replace a value of a table and sign it again, if it can be."""
    changed = json_value(text, chance)
    try:
        record = json.loads(changed)
        content = {key: value for key, value in record.items() if key != "sha256"}
        body = json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        record["sha256"] = hashlib.sha256(body.encode()).hexdigest()
        return json.dumps(record, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    except (ValueError, RecursionError, AttributeError):
        return changed


def zipped(content: bytes, chance: random.Random) -> bytes:
    if chance.random() < 0.1:
        return gzip.compress(bytes(2 ** chance.randrange(20, 29)), 9)
    packed = bytearray(gzip.compress(content))
    if chance.random() < 0.5:
        packed[chance.randrange(len(packed))] ^= 1 << chance.randrange(8)
    return bytes(packed)


def judge(name: str, content: bytes, command: list[str], report: dict) -> None:
    """Run a command and add its end to the report."""
    began = time.monotonic()
    status, err, most = run([part.format(name) for part in command])
    seconds = time.monotonic() - began
    last = err.strip().splitlines()[-1:]
    refused = status == 2 and last and last[0].startswith("gemmtune: ") and len(last[0]) < 5000
    report["cases"] += 1
    report["status"][status] += 1
    report["most_mb"] = max(report["most_mb"], most // 2**20)
    report["most_seconds"] = round(max(report["most_seconds"], seconds), 1)
    if "Traceback" in err or not (refused or status in (0, 1)) or most > MOST_BYTES:
        kept = Path(tempfile.gettempdir()) / f"hostile-{hashlib.sha256(content).hexdigest()[:8]}-{name}"
        kept.write_bytes(content)
        report["wrong"].append({"command": command, "file": str(kept), "status": status, "mb": most // 2**20})
        report["wrong"][-1]["said"] = err[-600:]


def run(arguments: list[str]) -> tuple[int, str, int]:
    """Run the command line in a fork; return its exit status, its standard error, and its largest memory in bytes."""
    shutil.rmtree("searched", ignore_errors=True)
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        for number, path in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8") for number in (1, 2))
        sys.argv = ["gemmtune", *arguments]
        status = 3
        try:
            cli.main()
        except SystemExit as ended:
            status = ended.code or 0
        except BaseException:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(status)
    _, ended, used = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(ended), Path("stderr").read_text(errors="replace"), used.ru_maxrss * 1024


if __name__ == "__main__":
    sys.exit(main())
