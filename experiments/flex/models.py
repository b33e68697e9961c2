"""Time two models that use flex_attention: a Llama block stack with documents, and one with softcap and window.

Sizes: Llama-3.1-8B and Gemma-2-9B, config.json at huggingface.co. Weights are random, and positions are not encoded.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


@dataclass(frozen=True)
class Sizes:
    case: str
    """Case of `run.py` whose kernels the attention is."""
    hidden: int
    heads: int
    kv_heads: int
    head: int
    intermediate: int
    length: int = 8192
    blocks: int = 2
    window: int = 0
    softcap: float = 0.0


MODELS = {
    "llama-8b, documents": Sizes("documents", 4096, 32, 8, 128, 14336),
    "gemma-2-9b, softcap and window": Sizes("gemma-2", 3584, 16, 8, 256, 14336, window=4096, softcap=50.0),
}
SMALL = {
    "documents": Sizes("documents", 64, 4, 2, 16, 96, length=96),
    "softcap and window": Sizes("gemma-2", 64, 4, 2, 16, 96, length=96, window=40, softcap=50.0),
}
"""Sizes for a rehearsal on a CPU."""
ROUNDS, WARM, FLUSH_BYTES = 16, 4, 2**29
ARMS = ("eager", "torch.compile", "max-autotune", "table")


def document_ids(length: int, device: str) -> Tensor:
    """Return the document of each position: those of the case that was tuned."""
    from gemmtune.engine.records.flex.masks import lengths_of

    lengths = torch.tensor(lengths_of("8", length))
    return torch.arange(len(lengths), dtype=torch.int32).repeat_interleave(lengths).to(device)


class Block(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes, inner = sizes, sizes.heads * sizes.head
        self.qkv = nn.Linear(sizes.hidden, inner + 2 * sizes.kv_heads * sizes.head, bias=False)
        self.o = nn.Linear(inner, sizes.hidden, bias=False)
        self.gate_up = nn.Linear(sizes.hidden, 2 * sizes.intermediate, bias=False)
        self.down = nn.Linear(sizes.intermediate, sizes.hidden, bias=False)
        self.before, self.between = nn.RMSNorm(sizes.hidden, eps=1e-5), nn.RMSNorm(sizes.hidden, eps=1e-5)

    def forward(self, x: Tensor, attend: Callable[..., Tensor]) -> Tensor:
        sizes = self.sizes
        heads = self.qkv(self.before(x)).unflatten(-1, (-1, sizes.head)).transpose(1, 2)
        q, k, v = heads.split([sizes.heads, sizes.kv_heads, sizes.kv_heads], dim=1)
        x = x + self.o(attend(q, k, v).transpose(1, 2).flatten(2))
        gate, up = self.gate_up(self.between(x)).chunk(2, dim=-1)
        return x + self.down(functional.silu(gate) * up)


class Model(nn.Module):
    """Stack of blocks with one mask; `attention` is flex_attention, or a function like it."""

    def __init__(self, sizes: Sizes, device: str, attention: Callable[..., Tensor]) -> None:
        super().__init__()
        self.sizes, self.attention = sizes, attention
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.blocks))
        self.register_buffer("ids", document_ids(sizes.length, device))
        ids, window = self.ids, sizes.window
        self.mask = {
            "documents": lambda b, h, q, kv: (q >= kv) & (ids[q] == ids[kv]),
            "gemma-2": lambda b, h, q, kv: (q >= kv) & (q - kv < window),
        }[sizes.case]
        self.seen = create_block_mask(self.mask, None, None, sizes.length, sizes.length, device=device)

    def score(self, s: Tensor, b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
        return self.sizes.softcap * torch.tanh(s / self.sizes.softcap)

    def forward(self, x: Tensor) -> Tensor:
        score = self.score if self.sizes.softcap else None
        attend = partial(self.attention, score_mod=score, block_mask=self.seen, enable_gqa=True)
        for block in self.blocks:
            x = block(x, attend)
        return x


def dense(q: Tensor, k: Tensor, v: Tensor, *, score_mod, block_mask, enable_gqa: bool) -> Tensor:
    """Return attention by whole matrices, for a rehearsal: flex_attention has no gradients on a CPU."""
    k, v = (each.repeat_interleave(q.shape[1] // k.shape[1], 1) for each in (k, v))
    at, scores = torch.arange(q.shape[2], device=q.device), q @ k.mT * q.shape[-1] ** -0.5
    scores = scores if score_mod is None else score_mod(scores, None, None, None, None)
    return scores.masked_fill(~block_mask.mask_mod(0, 0, at[:, None], at), float("-inf")).softmax(-1) @ v


def measured(name: str, *, rehearse: bool) -> dict[str, object]:
    """Return ms of each arm, forward and training step, in alternating rounds, and errors against eager."""
    device, dtype = ("cpu", torch.float32) if rehearse else ("cuda", torch.bfloat16)
    sizes = (SMALL if rehearse else MODELS)[name]
    torch._dynamo.reset()
    torch.manual_seed(0)
    torch._functorch.config.donated_buffer = False
    model = Model(sizes, device, dense if rehearse else flex_attention).to(device, dtype)
    x = torch.randn(1, sizes.length, sizes.hidden, device=device, dtype=dtype)
    grad = torch.randn_like(x)
    calls, found = {}, {"first call s": {}, "errors": {}}
    expected: list[Tensor] = []
    for arm in ARMS:
        began = time.monotonic()
        call, uses = arm_of(arm, model, rehearse=rehearse)
        phases = {"forward": partial(forward, call, x), "training": partial(training, call, model, x, grad)}
        results = [phases["forward"](), *phases["training"]()]
        found["first call s"][arm] = round(time.monotonic() - began, 1)
        found |= uses()
        expected = expected or results
        found["errors"][arm] = [error(*each) for each in zip(results, expected, strict=True)]
        calls[arm] = phases
    for phase in ("forward", "training"):
        found[phase] = timed({arm: its[phase] for arm, its in calls.items()}, device)
    return found


def arm_of(arm: str, model: Model, *, rehearse: bool) -> tuple[Callable[[Tensor], Tensor], Callable[[], dict]]:
    """Return a model as an arm runs it, and a function that says behind the first calls what the table served."""
    if rehearse:
        return torch.compile(model, backend="eager") if arm != "eager" else model, dict
    if arm == "eager":  # but for attention, as programs run it
        attention = torch.compile(flex_attention, dynamic=False)

        def eager(x: Tensor) -> Tensor:
            model.attention = attention
            try:
                return model(x)
            finally:
                model.attention = flex_attention

        return eager, dict
    if arm == "table":
        import gemmtune_inductor

        gemmtune_inductor.install()

        def uses() -> dict:
            report = gemmtune_inductor.report().to_dict()
            gemmtune_inductor.uninstall()
            return {"uses": [[use["problem"], use["outcome"], use["detail"]] for use in report["uses"]]}

        return torch.compile(model, dynamic=False, options=gemmtune_inductor.options()), uses
    mode = "max-autotune-no-cudagraphs" if arm == "max-autotune" else None
    return torch.compile(model, dynamic=False, mode=mode), dict


def forward(call: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    with torch.no_grad():
        return call(x)


def training(call: Callable[[Tensor], Tensor], model: Model, x: Tensor, grad: Tensor) -> list[Tensor]:
    """Run forward and backward, and return the gradients of the first block's weights."""
    model.zero_grad(set_to_none=True)
    call(x).backward(grad)
    return [each.grad for each in (model.blocks[0].qkv.weight, model.blocks[0].down.weight)]


def error(found: Tensor, expected: Tensor) -> float:
    return round(float((found.double() - expected.double()).norm() / expected.double().norm()), 5)


def timed(calls: dict[str, Callable[[], object]], device: str) -> dict[str, float]:
    """Return the median ms of each call behind a flush of the L2; every other round has the calls in reverse order."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    flush = torch.empty(FLUSH_BYTES if device == "cuda" else 1, dtype=torch.uint8, device=device)
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    for turn in range(ROUNDS + WARM):
        for name in list(calls)[:: -1 if turn % 2 else 1]:
            flush.zero_()
            wait()
            began = time.perf_counter()
            calls[name]()
            wait()
            if turn >= WARM:
                times[name].append((time.perf_counter() - began) * 1e3)
    return {name: round(statistics.median(its), 3) for name, its in times.items()}


def table(known: dict) -> None:
    """Print a line per model and phase: ms of each arm, and the gain of the table over torch.compile."""
    print(f"{'model':32}{'phase':10}" + "".join(f"{arm:>14}" for arm in ARMS) + f"{'gain':>8}{'error':>9}")
    for name, its in known.items():
        for phase in ("forward", "training"):
            ms = its[phase]
            worst = max(its["errors"]["table"])
            cells = "".join(f"{ms[arm]:14.3f}" for arm in ARMS)
            print(f"{name:32}{phase:10}{cells}{ms['torch.compile'] / ms['table']:8.3f}{worst:9.5f}")
