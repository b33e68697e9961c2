"""The commands that take a model: capture, problems and bench."""

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from gemmtune.engine.cli import output
from gemmtune.engine.cli.choices import Kind, one_of
from gemmtune.engine.cli.options import NO_BINARIES_HELP, AsJson, in_output, integers, named, time_span
from gemmtune.engine.consumers.inductor.bench.arms import ARMS
from gemmtune.engine.consumers.inductor.hugging_face.settings import CONTEXT
from gemmtune.engine.io.printing import print_notice, print_text
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.report.progress.work import show_work
from gemmtune.engine.store.files import write_whole

_CALL_HELP = (
    "A torch module, its class, a function without parameters that builds one, or a function of the inputs; imported "
    "from this folder."
)
_HUB_HELP = "Or a model of transformers, hf:Qwen/Qwen3-0.6B, or hf:FOLDER with its config.json."
_FILE_HELP = (
    f"{_HUB_HELP} Or a record: problems.jsonl of "
    "gemmtune_inductor.record, TunableOp's tunableop_untuned0.csv, a list of AITER (.csv), FlashInfer's configs "
    "(.json), or a log of Inductor (.log) with AUTOTUNE lines; name those of several processes."
)
_INPUT_HELP = (
    "A tensor of the call: [NAME=]DTYPE[SIZE,...], for example bf16[16,2048] or tokens=int64[1,512]%32000 (integers "
    "below 32000). A size that differs between calls is NAME:FIRST..LAST. Repeat for more."
)
_CALL_OPTION_HELP = (
    "A further call, by its inputs and its weight: 'weight=512 input_ids=int64[16,1]%32000', or of hf:MODEL "
    "'weight=512 tokens=1 batch=16'. Each is captured by itself; products are merged. Repeat for more."
)
_CALLS_HELP = "A file of further calls, one per line as --call has it; lines that begin with # are comments."
_TOKENS_HELP = "Tokens per sequence of hf:MODEL, one or several: 1 decodes with a cache, more are a prompt."
_BATCH_HELP = "Sequences per call of hf:MODEL, one or several. [default: 1]"
_CONTEXT_HELP = f"Tokens that the cache of a decoding step of hf:MODEL holds. [default: {CONTEXT}]"
_LAYERS_HELP = "Layers of hf:MODEL to capture, at least 2; the others count as repetitions. [default: all]"
_HTML_HELP = "Write where the time is as one HTML file, too; it needs the extra report."
_DEVICE_HELP = f"The GPU to capture for, {one_of(Kind.DEVICES)}. [default: this machine's]"
_FIXED_INPUT_HELP = "A tensor of the call, as for gemmtune capture, without open sizes. Repeat for more."
_ONE_TOKENS_HELP = "Tokens per sequence of hf:MODEL: 1 decodes with a cache, more are a prompt. [default: 1]"
_ONE_BATCH_HELP = "Sequences, or pictures, of hf:MODEL. [default: 1]"
_ARMS_HELP = f"Arms to run, of {','.join(ARMS)}. [default: eager,compile, and table with --table]"
_TUNE_KERNELS_HELP = "First tune the kernels between the products, and add them to the table and its loader in DIR."

_MODEL_HELP = "A config.json, its folder, or a model of the local Hugging Face cache: Qwen/Qwen3-30B-A3B."
_EP_HELP = "Expert-parallel ranks: of SGLang a divisor of --tp, of vLLM 1 or all ranks."
_COUNTS_HELP = "Token counts to tune. [default: those of the engine's own tuner]"
_DTYPE_HELP = "Type of the experts in place of the model's: fp8_tensor for vLLM's --quantization fp8."


def capture(
    call: Annotated[list[str], typer.Argument(metavar="MODULE:CALL", help=f"{_CALL_HELP} {_FILE_HELP}")],
    input: Annotated[list[str] | None, typer.Option("--input", metavar="SPEC", help=_INPUT_HELP)] = None,  # noqa: A002
    calls: Annotated[list[str] | None, typer.Option("--call", metavar="CALL", help=_CALL_OPTION_HELP)] = None,
    call_file: Annotated[Path | None, typer.Option("--calls", metavar="FILE", help=_CALLS_HELP)] = None,
    tokens: Annotated[str | None, typer.Option(metavar="N[,N]...", help=_TOKENS_HELP)] = None,
    batch: Annotated[str | None, typer.Option(metavar="N[,N]...", help=_BATCH_HELP)] = None,
    context: Annotated[int | None, typer.Option(min=1, metavar="N", help=_CONTEXT_HELP)] = None,
    layers: Annotated[int | None, typer.Option(min=2, metavar="N", help=_LAYERS_HELP)] = None,
    grad: Annotated[bool, typer.Option("--grad", help="Capture the gradients, too.")] = False,
    device: Annotated[str | None, named(Kind.DEVICES, _DEVICE_HELP)] = None,
    out: Annotated[Path, in_output(help="The campaign file to write.")] = Path("problems.toml"),
    html: Annotated[Path | None, in_output(metavar="FILE", help=_HTML_HELP)] = None,
    as_json: AsJson = False,
) -> None:
    """List every product that a model runs, to tune it.

    Inductor lowers the model, on a GPU or for a named one without it. Writes a campaign file for gemmtune tune: each
    distinct product with its sizes, types and layouts, and how often it runs as its weight. Work that no table can
    serve is named in the file's head. Shows what share of the model's floor each part has. The exit status is 1, and no
    file is written, where there is nothing to tune.
    """
    from gemmtune.engine.api.capturing import capture as capture_call
    from gemmtune.engine.consumers.inductor.capture.model_calls import read_calls
    from gemmtune.engine.consumers.inductor.report.captures import capture_report

    _require_campaign(out)
    sys.path.insert(0, str(Path.cwd()))
    with show_work("lowering the model", quiet=as_json):
        found = capture_call(
            *call,
            *(input or ()),
            calls=[*(calls or ()), *(read_calls(call_file) if call_file else ())],
            tokens=integers("--tokens", tokens),
            batch=integers("--batch", batch),
            context=context,
            layers=layers,
            grad=grad,
            device=device,
        )
    if found.problems:
        write_whole(out, found.to_toml().encode())
    if html is not None:
        from gemmtune.engine.consumers.inductor.report.capture_page import capture_html  # matplotlib takes a while

        write_whole(html, capture_html(found).encode())
    output.show(capture_report(found, str(out)), as_json=as_json)
    if html is not None and not as_json:
        print_text(f"written: {html}")
    if not found.problems:
        raise typer.Exit(1)


def _require_campaign(out: Path) -> None:
    """Refuse to write a campaign over a file of another kind."""
    if out.suffix != ".toml":
        raise UsageError(f"--out {out}: a campaign file ends in .toml")


def problems(
    engine: Annotated[str, typer.Option(metavar="ENGINE", help="The serving engine: vllm or sglang.")],
    model: Annotated[str, typer.Option(metavar="MODEL", help=_MODEL_HELP)],
    tp: Annotated[int, typer.Option(min=1, metavar="N", help="Tensor-parallel ranks.")] = 1,
    ep: Annotated[int, typer.Option(min=1, metavar="N", help=_EP_HELP)] = 1,
    tokens: Annotated[str | None, typer.Option(metavar="N[,N]...", help=_COUNTS_HELP)] = None,
    dtype: Annotated[str | None, typer.Option(metavar="TYPE", help=_DTYPE_HELP)] = None,
    out: Annotated[Path, typer.Option(help="The campaign file to write.")] = Path("problems.toml"),
    as_json: AsJson = False,
) -> None:
    """List a model's layers for vLLM or SGLang, to tune them.

    Writes a campaign file for gemmtune tune from the model's config.json: its mixture-of-experts layers, and its linear
    layers in fp8 with a scale per block, as one rank runs them, at the token counts of the engine's own tuner. Needs
    neither the engine, nor weights, nor a GPU, and downloads nothing. Layers that no table can serve are named.
    """
    from gemmtune.engine.consumers.serving.models.campaign import engine_problems

    _require_campaign(out)
    found = engine_problems(engine, model, tp=tp, ep=ep, tokens=integers("--tokens", tokens), dtype=dtype)
    write_whole(out, found.to_toml().encode())
    output.show(found.report(str(out)), as_json=as_json)


def bench(
    call: Annotated[str, typer.Argument(metavar="MODULE:CALL", help=f"{_CALL_HELP} {_HUB_HELP}")],
    input: Annotated[list[str] | None, typer.Option("--input", metavar="SPEC", help=_FIXED_INPUT_HELP)] = None,  # noqa: A002
    tokens: Annotated[int | None, typer.Option(min=1, metavar="N", help=_ONE_TOKENS_HELP)] = None,
    batch: Annotated[int | None, typer.Option(min=1, metavar="N", help=_ONE_BATCH_HELP)] = None,
    context: Annotated[int | None, typer.Option(min=1, metavar="N", help=_CONTEXT_HELP)] = None,
    table: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The campaign's folder: table.json and inductor/.")
    ] = None,
    arms: Annotated[str | None, typer.Option(metavar="NAMES", help=_ARMS_HELP)] = None,
    no_binaries: Annotated[bool, typer.Option("--no-binaries", help=NO_BINARIES_HELP)] = False,
    grad: Annotated[bool, typer.Option("--grad", help="Time a forward pass with its gradients.")] = False,
    tune_kernels: Annotated[bool, typer.Option("--tune-kernels", help=_TUNE_KERNELS_HELP)] = False,
    seconds: Annotated[float, typer.Option(metavar="N", help="Time for all rounds, s.", parser=time_span)] = 10.0,
    out: Annotated[Path | None, in_output(help="The file for the result as JSON. [default: DIR/bench.json]")] = None,
    as_json: AsJson = False,
) -> None:
    """Time a model eager, compiled, and with a table.

    Needs the GPU. All arms run in one process, in alternating rounds, as CUDA graphs where every arm allows one. Shows
    the time per call, the first call, benchmarks, memory and the difference from eager, and what each row gains.
    """
    sys.path.insert(0, str(Path.cwd()))
    wanted = tuple(arms.split(",")) if arms else ("eager", "compile", *(("table",) if table else ()))
    with show_work(f"timing {call}", quiet=as_json):
        from gemmtune.engine.api.benching import bench as timed
        from gemmtune.engine.consumers.inductor.report.bench_file import BENCH_FILE, write_bench
        from gemmtune.engine.consumers.inductor.report.benches import bench_report

        run = partial(
            timed,
            tokens=tokens,
            batch=batch,
            context=context,
            arms=wanted,
            grad=grad,
            tune_kernels=tune_kernels,
            seconds=seconds,
            notify=print_notice,
        )
        found = run(call, *(input or ()), table=table, binaries=not no_binaries)
    target = out or (table / BENCH_FILE if table else None)
    if target is not None:
        write_bench(found, target)
    output.show(bench_report(found), as_json=as_json)
