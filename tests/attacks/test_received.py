"""Files that a person may receive: whatever their texts say, nothing runs, and nothing is written but the output."""

from __future__ import annotations

import csv
import gc
import gzip
import io
import json
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import gemmtune as gt
from gemmtune.engine.api.plans import read_plan
from gemmtune.engine.api.showing import file_report
from gemmtune.engine.consumers.cute.table_loader import parse_cute_table
from gemmtune.engine.consumers.inductor.bench.model_bench import ArmTimes, ModelBench, ProductGain
from gemmtune.engine.consumers.inductor.loader.loader_rows import parse_inductor_table
from gemmtune.engine.consumers.inductor.report.bench_file import read_bench, write_bench
from gemmtune.engine.consumers.serving.audit import audit
from gemmtune.engine.consumers.triton.loader import parse_triton_table
from gemmtune.engine.records.errors import GemmtuneError, ProblemError
from gemmtune.engine.report.campaign_record import CampaignRecord
from gemmtune.engine.report.html.row_sections import markdown
from gemmtune.engine.report.progress.progress_file import read_progress
from gemmtune.engine.report.progress.run import read_run
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.kinds import parse_workload, workload_of
from gemmtune.engine.store.landscapes.landscape_file import embedded, read_landscapes
from gemmtune.engine.tables import table_file
from gemmtune.engine.tables.sealed import read_sealed, seal_of
from gemmtune.engine.testing.exporter_conformance import example_table

FOREIGN = Path(__file__).parents[1] / "engine/store/landscapes/foreign"
DECODE = "16x4096x4096:bf16:nt"
PAYLOADS = {
    "code": [
        '\nsampler = "./evil.py:Evil"\nproblems = ["triton:./evil.py:Evil"]\n#',
        "./evil.py:Evil",
        "evil:Evil",
        "triton:./evil.py:Evil",
        "__import__('pathlib').Path('marker').touch()",
    ],
    "path": ["../planted", "{box}/planted", "$(touch marker)`touch marker`;touch marker|", "file://{box}/planted"],
    "control": [
        "\x1b[31m\x9b2J\r\x85\u2028\u202e\x7f</script><img src=x onerror=alert(1)>|`",
        "\n</script><img src=x onerror=alert(1)>|`[a](javascript:a)",
        "\0",
    ],
}
EVIL = """
import pathlib, subprocess
from gemmtune.engine.seams.sampler import Sampler
pathlib.Path("{box}/marker").touch()
subprocess.run(["true"])
class Evil(Sampler):
    pass
"""
STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "pty.spawn")
CHANGES = ("os.rename", "os.link", "os.symlink", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.chmod")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


# The detector


class Box:
    """Folder with a planted file that tells if it runs, and what the process does while it reads."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.out, self.seen = folder, folder / "out", []
        self.out.mkdir()
        (folder / "evil.py").write_text(EVIL.replace("{box}", str(folder)))

    def see(self, event: str, args: tuple[Any, ...]) -> None:
        """Take an event of Python's audit hooks."""
        if event in STARTS or (event == "exec" and str(args[0].co_filename).endswith("evil.py")):
            self.seen.append(f"{event} {args}")
        elif event == "open" and (not isinstance(args[2], int) or not args[2] & WRITES):
            return
        elif event == "open" or event in CHANGES:
            paths = [os.fsdecode(each) for each in args[:2] if isinstance(each, str | bytes)][
                : 2 if event in CHANGES else 1
            ]
            self.seen += [f"{event} {each}" for each in paths if not self._may_write(each)]

    def _may_write(self, path: str) -> bool:
        whole = Path(self.folder, path).resolve()
        return whole.is_relative_to(self.out) or whole == Path(os.devnull) or "__pycache__" in whole.parts

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch this process in the block; what earlier tests left, which may remove files, is not collected there."""
        gc.disable()
        watching.append(self)
        try:
            yield
        finally:
            watching.clear()
            gc.enable()

    def files(self) -> set[Path]:
        """Return the files that lie outside of the output."""
        return {path for path in self.folder.rglob("*") if not path.is_relative_to(self.out)}


watching: list[Box] = []


def hook(event, args):
    for box in watching:
        box.see(event, args)


@pytest.fixture(scope="module", autouse=True)
def _hooked():
    sys.addaudithook(hook)  # it cannot be removed


@pytest.fixture
def box(tmp_path, monkeypatch) -> Iterator[Box]:
    """Make a folder with a planted file, and import from it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield Box(tmp_path)
    watching.clear()
    sys.modules.pop("evil", None)


def test_the_detector_sees_code_that_runs_files_that_are_written_and_processes_that_start(box):
    (box.folder / "campaign.toml").write_text(f'problems = ["{DECODE}"]\nsampler = "./evil.py:Evil"\n')
    with box.watched():
        assert read_plan(Path("campaign.toml")).sampler.__name__ == "Evil"
        (box.out / "fine").write_text("inside")
    assert (box.folder / "marker") in box.files()
    for part in ("exec", "open", "subprocess.Popen"):
        assert any(each.startswith(part) for each in box.seen), box.seen
    assert not [each for each in box.seen if "fine" in each]


# Examples, and how each is read


@pytest.fixture(scope="module")
def campaign(tmp_path_factory) -> Path:
    """Folder of a small campaign with its report, a bench and the progress of one that was stopped."""
    folder = tmp_path_factory.mktemp("campaign") / "out"
    recorded = tmp_path_factory.mktemp("recorded")
    for path in embedded():  # one problem's lines: reading all takes longer than the campaign
        header, *lines = gzip.decompress(path.read_bytes()).decode().splitlines(keepends=True)
        decode = "".join(line for line in lines if line.startswith("16,4096,4096,mm,"))
        (recorded / path.stem).write_text(header + decode)
    gt.tune([DECODE], backend=gt.landscapes(recorded), budget=2, sampler="random", out=folder)
    arms = [ArmTimes(name, (2e6, 2.1e6)) for name in ("eager", "compile")] + [ArmTimes("table", failure="E: no")]
    gain = ProductGain(DECODE, 4, "row", "triton::mm", 3000.0, 2500.0)
    write_bench(
        ModelBench("m:f", ("bf16[2,2]",), False, "NVIDIA H200", "2.13.0", True, tuple(arms), (gain,)),
        folder / "bench.json",
    )
    (folder / "progress.json").write_text('{"done": 1, "total": 2, "seconds_left": null}')
    return folder


def signed(record: dict[str, Any]) -> bytes:
    """Return an export's file with the hash of its content."""
    bare = json.dumps({**record, "sha256": ""}, ensure_ascii=False).encode()
    return bare.replace(b'"sha256": ""', f'"sha256": "{seal_of(bare, "")}"'.encode())


def signed_table(record: dict[str, Any]) -> bytes:
    """Return the file of a table with the hash of its content."""
    bare = {name: value for name, value in record.items() if name != "sha256"}
    return json.dumps(bare | {"sha256": table_file._hash(bare)}, ensure_ascii=False).encode()


def plain_json(record: object) -> bytes:
    return json.dumps(record, ensure_ascii=False).encode()


def lines_of_json(record: list[object]) -> bytes:
    return "".join(json.dumps(line) + "\n" for line in record).encode()


def cells(record: list[list[str]]) -> bytes:
    out = io.StringIO()
    csv.writer(out).writerows(record)
    return out.getvalue().encode()


def bare_cells(record: list[list[str]]) -> bytes:
    return "".join(",".join(row) + "\n" for row in record).encode()


def exported(name: str, file: str) -> Callable[[Path], Any]:
    return lambda _: json.loads(registry.exporter(name).export(example_table(registry.exporter(name)))[file])


def table_of(name: str) -> Callable[[Path], Any]:
    def example(_: Path) -> Any:
        found = example_table(registry.exporter(name))
        return json.loads(table_file.table_text(replace(found, rows=found.rows[:1])))

    return example


@dataclass(frozen=True)
class Received:
    """Kind of a file that a person may receive."""

    file: str
    example: Callable[[Path], Any]
    text: Callable[[Any], bytes]
    read: Callable[[Path], object]
    uses: tuple[str, ...] = ()
    refusals: tuple[type[Exception], ...] = (GemmtuneError,)
    beside: bool = field(default=False)
    """Whether it lies in a campaign's folder."""


PRODUCT = {"type": "product", "process": "a", "graph": 1, "problem": DECODE, "epilogue": "relu", "m": "16"}
RECORDING = [
    {"type": "start", "process": "a", "torch": "2.13.0", "device": "NVIDIA H200"},
    PRODUCT | {"first": 16, "last": 16, "step": 1},
    PRODUCT | {"epilogue": "unreadable: atan", "first": 16, "last": 16, "step": 1},
    PRODUCT | {"problem": f"{DECODE}:dynamic_m=true", "epilogue": "", "m": "8*s0", "first": 8, "last": None, "step": 8},
    {"type": "unseen", "process": "a", "graph": 1, "operation": "conv", "reason": "a library's kernel", "count": 3},
    {"type": "runs", "process": "a", "graph": 1, "runs": 10},
]
TUNABLE = [
    ["GemmTunableOp_BFloat16_TN", "tn_4096_16_4096_ld_4096_4096_4096"],
    ["GemmTunableOp_double_TN", "tn_4096_16_1024_ld_1024_1024_4096"],
]
LANDSCAPE = [
    ["problem.m", "task.device", "task.space", "BLOCK", "kind", "time_us", "status"],
    ["16", "NVIDIA H200", "own", "1", "a", "5", "ok"],
    ["16", "NVIDIA H200", "own", "2", "b", "4", "ok"],
    ["16", "NVIDIA H200", "own", "4", "b", "", "build_failed: no registers"],
]
CAPTURE = ("capture {file} --out out/problems.toml", "capture {file} --out out/problems.toml --json")
SHOW = ("show {file}", "show {file} --json")
REPLAY = (*SHOW, "compare {file} --sampler random --budget 2 --seeds 1 --json")
EXPORT = "export {file} --out out --to "
TABLE = (*SHOW, "show {file} --html out/report.html", "diff {file} {file} --html out/diff.html", f"{EXPORT}inductor")
KERNELS, LAYERS = (*SHOW, f"{EXPORT}triton"), (*SHOW, f"{EXPORT}vllm")
REPORT = ("show {folder} --html out/report.html", "show {folder}", "campaigns {folder}/measurements.db")


def tuner_file(name: str) -> Callable[[Path], Any]:
    def example(_: Path) -> Any:
        found = json.loads((FOREIGN / name).read_text(encoding="utf-8"))
        rows = "cache" if "cache" in found else "results"
        found[rows] = dict(list(found[rows].items())[:2]) if rows == "cache" else found[rows][:2]
        return found

    return example


IN_A_FOLDER = ("run.json", "bench.json", "progress.json")


def folder_files(folder: Path) -> Any:
    return {name: json.loads((folder / name).read_text(encoding="utf-8")) for name in IN_A_FOLDER}


def files_of_folder(record: dict[str, Any]) -> bytes:
    """Write each file of the record into the folder of the process, and return them all."""
    for name in IN_A_FOLDER:
        Path(name).write_bytes(plain_json(record.get(name)))
    return plain_json(record)


def read_folder(path: Path) -> None:
    read_run(path.parent)
    read_bench(path.parent / "bench.json")
    read_progress(path.parent)


RECEIVED = {
    "recording": Received("problems.jsonl", lambda _: RECORDING, lines_of_json, read_plan, CAPTURE),
    "TunableOp": Received("tunableop_untuned0.csv", lambda _: TUNABLE, bare_cells, read_plan, CAPTURE),
    "landscape": Received("landscape.csv", lambda _: LANDSCAPE, cells, read_landscapes, REPLAY),
    "cache": Received("cache.json", tuner_file("kernel_tuner_cache.json"), plain_json, read_landscapes, REPLAY),
    "results": Received("results.json", tuner_file("t4_results.json"), plain_json, read_landscapes, REPLAY),
    "table": Received("table.json", table_of("inductor"), signed_table, table_file.read_table, TABLE),
    "kernels' table": Received("table.json", table_of("triton"), signed_table, table_file.read_table, KERNELS),
    "layers' table": Received("table.json", table_of("vllm"), signed_table, table_file.read_table, LAYERS),
    "Inductor's export": Received(
        "inductor_table.json",
        exported("inductor", "inductor_table.json"),
        signed,
        lambda path: read_sealed(path, parse_inductor_table),
        SHOW,
        (TypeError, ValueError),
    ),
    "stock lookup": Received(
        "lookup_table.json",
        exported("inductor", "lookup_table.json"),
        plain_json,
        lambda path: file_report(str(path)),
        SHOW,
    ),
    "CuTe's export": Received(
        "cute_table.json",
        exported("cute", "cute_table.json"),
        signed,
        lambda path: read_sealed(path, parse_cute_table),
        SHOW,
        (TypeError, ValueError),
    ),
    "Triton's export": Received(
        "triton_table.json",
        exported("triton", "triton_table.json"),
        signed,
        lambda path: read_sealed(path, parse_triton_table),
        SHOW,
        (TypeError, ValueError),
    ),
    "vLLM's file": Received(
        "tuned/E=8,N=14336,device_name=NVIDIA_H200.json",
        lambda _: {"triton_version": "3.6.0", "16": {"BLOCK_SIZE_M": 16, "kind": "a"}},
        plain_json,
        lambda path: audit(str(path.parent)),
        ("check tuned --html out/audit.html", "check tuned --json"),
    ),
    "campaign's folder": Received("out.json", folder_files, files_of_folder, read_folder, REPORT, beside=True),
}


# The attack


def texts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], bool]]:
    """Yield the path of every text in a JSON value, the deepest first, and whether it is a key."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from texts(item, (*path, key))
        if isinstance(item, str):
            yield (*path, key), False
        if isinstance(key, str):
            yield (*path, key), True


def changed(value: Any, path: tuple[Any, ...], is_key: bool, made: Callable[[str], str]) -> Any:
    """Return a copy with another text at a path."""
    key, *rest = path
    if rest:
        entries = {key: changed(value[key], tuple(rest), is_key, made)}
        return {**value, **entries} if isinstance(value, dict) else [*value[:key], entries[key], *value[key + 1 :]]
    if is_key:
        return {made(name) if name == key else name: item for name, item in value.items()}
    copied = value.copy()
    copied[key] = made(value[key])
    return copied


def check_outputs(box: Box, ran: Any, command: str) -> None:
    """Check that a command ended in an answer or one line, and that its output moves no cursor and runs in no page."""
    assert ran.status in (0, 1) or ran.is_refusal(), (command, ran)
    files = [path for path in box.out.rglob("*") if path.is_file() and path.suffix != ".db"]
    written = {path.name: path.read_text(encoding="utf-8") for path in files}
    for name, text in {"stdout": ran.out, "stderr": ran.err, **written}.items():
        assert all(line.isprintable() for line in text.split("\n")), (command, name)
        assert not name.endswith(".html") or "<img src=x" not in text, (command, name)


def is_taken(box: Box, kind: Received, record: Any) -> bool:
    """Return whether a record is read; a refusal has a reason, which a production loader gives in one line."""
    try:
        (box.folder / kind.file).write_bytes(kind.text(record))
        with box.watched():
            kind.read(box.folder / kind.file)
    except kind.refusals as error:
        said = str(error)
        return not (said and (GemmtuneError in kind.refusals or said.isprintable()))
    return True


def prepared(box: Box, kind: Received, campaign: Path) -> Any:
    """Return the example of a kind, after its neighbours are there."""
    if kind.beside:
        shutil.copytree(campaign, box.folder, dirs_exist_ok=True)
    (box.folder / kind.file).parent.mkdir(exist_ok=True)
    return kind.example(campaign)


def made_from(box: Box, payload: str) -> tuple[Callable[[str], str], ...]:
    """Return how a payload gets into a text: in its place, and behind it."""
    text = payload.replace("{box}", str(box.folder))
    return (lambda _: text), (lambda before: before + text)


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("name", RECEIVED)
def test_nothing_that_the_texts_of_a_received_file_say_is_done(box, run, campaign, name, payload):
    """Give every text a payload, and use the file with as many of them as its reader takes at once."""
    kind, payloads = RECEIVED[name], PAYLOADS[payload]
    record, taken = prepared(box, kind, campaign), 0
    assert is_taken(box, kind, record)
    before = box.files()
    for number, (path, is_key) in enumerate(texts(record)):
        for made in made_from(box, payloads[number % len(payloads)]):
            if is_taken(box, kind, candidate := changed(record, path, is_key, made)):
                record, taken = candidate, taken + 1
                break
    assert is_taken(box, kind, record)
    assert taken or payload == "control" or kind.refusals != (GemmtuneError,)
    for use in kind.uses:
        with box.watched():
            ran = run(*use.format(file=kind.file, folder=".").split())
        check_outputs(box, ran, use)
    assert (box.seen, box.files()) == ([], before)


def test_names_of_a_received_table_are_text_in_the_markdown_to_paste(campaign):
    table = table_file.read_table(campaign / "table.json")
    device = replace(table.device, name="H200 [a](javascript:a) <img src=x> `b` | *c*")
    record = CampaignRecord(replace(table, device=device), registry.objective("latency"))
    assert markdown(record, [device.name]).code.splitlines()[0] == (
        r"- H200 \[a\](javascript:a) \<img src=x\> \`b\` \| \*c\*"
    )


@pytest.mark.parametrize("name", ["a`|[b](c)", "a\nb", "../a", "a b"])
def test_a_kernel_of_a_received_table_is_named_like_a_class(name):
    case = parse_workload(registry.exporter("triton").example_problems[0])
    with pytest.raises(ProblemError, match="is no class with the digits of its source"):
        workload_of({"kind": "triton", **case.to_fields(), "kernel": name})


def text_columns(file: Path) -> list[tuple[str, str]]:
    """Return the tables and columns of a database that hold texts."""
    with closing(sqlite3.connect(file)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = [(table, row[1]) for table in tables for row in database.execute(f"PRAGMA table_info({table})")]
        held = "SELECT count(*) FROM {} WHERE typeof({}) = 'text'"
        return [each for each in columns if database.execute(held.format(*each)).fetchone()[0]]


def test_nothing_that_the_texts_of_a_received_database_say_is_done(box, run, campaign):
    payloads = [payload for group in PAYLOADS.values() for payload in group]
    columns = text_columns(campaign / "measurements.db")
    assert len(columns) > 10
    for number, (table, column) in enumerate(columns):
        shutil.copy(campaign / "measurements.db", box.folder / "received.db")
        text = payloads[number % len(payloads)].replace("{box}", str(box.folder))
        with closing(sqlite3.connect("received.db")) as database:
            database.execute(f"UPDATE OR REPLACE {table} SET {column} = ? || {column}", (text,))
            database.commit()
        before = box.files()
        with box.watched():
            ran = run(*("export", "received.db", "--out", "out") if number % 2 else ("show", "received.db", "--json"))
        check_outputs(box, ran, f"{table}.{column}")
        assert (box.seen, box.files()) == ([], before), (table, column)
