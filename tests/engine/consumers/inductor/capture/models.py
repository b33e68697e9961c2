"""Models that the tests of capture lower."""

from __future__ import annotations

import torch
from torch.nn import functional


class Mlp(torch.nn.Module):
    """Norm, two layers with tanh-gelu between, and the residual."""

    def __init__(self, width: int = 256, inner: int = 1024) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up, self.down = torch.nn.Linear(width, inner, bias=False), torch.nn.Linear(inner, width)

    def forward(self, x):
        return x + self.down(functional.gelu(self.up(self.norm(x)), approximate="tanh"))


class Attention(torch.nn.Module):
    """Four projections without bias around attention."""

    def __init__(self, width: int = 256, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (torch.nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            layer(x).view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.o(y.transpose(1, 2).reshape(batch, length, width))


class Head(torch.nn.Module):
    """Layer whose rows of 1,001 elements are not aligned, and the logarithm of its probabilities."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(512, 1001)

    def forward(self, x):
        return self.layer(x).float().log_softmax(-1)


class Tied(torch.nn.Module):
    """Embedding whose weight is that of the last layer, too."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = torch.nn.Embedding(128, 64), torch.nn.Linear(64, 128, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.embedding(tokens))


class Masked(torch.nn.Module):
    """Attention whose boolean mask is one number, expanded or copied: torch fuses attention with the copy alone."""

    def __init__(self, *, is_copied: bool) -> None:
        super().__init__()
        self.is_copied = is_copied

    def forward(self, x):
        mask = x.new_ones((), dtype=torch.bool).expand(x.shape[0], 1, x.shape[2], x.shape[2])
        mask = mask.contiguous() if self.is_copied else mask
        return functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)


def expanded_mask():
    return Masked(is_copied=False)


def copied_mask():
    return Masked(is_copied=True)


class Gated(torch.nn.Module):
    """Two layers of one input, whose gradient is a sum of two products."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = (torch.nn.Linear(64, 128, bias=False) for _ in range(2))

    def forward(self, x):
        return functional.silu(self.gate(x)) * self.up(x)


def gated():
    return Gated().bfloat16()


def mlp():
    return Mlp().bfloat16()


def head():
    return Head().bfloat16()


def tied():
    return Tied().bfloat16()


def convolution():
    return torch.nn.Conv2d(3, 64, 16, 16).bfloat16()


def block():
    return torch.nn.Sequential(Attention(), Mlp()).bfloat16()


class ReadsTheCpu(torch.nn.Module):
    """Two layers: a width of the first, and the use of the second are values of tensors on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        width = int(torch.linspace(64, 128, 2, device="cpu")[1].item())
        self.up, self.down = torch.nn.Linear(64, width), torch.nn.Linear(width, 64)

    def forward(self, x):
        y = self.up(x)
        return self.down(y) if torch.rand([]) < 2 else y


def reads_the_cpu():
    return ReadsTheCpu().bfloat16()


def broken(x):
    """Multiply on both sides of a graph break."""
    y = x @ x
    torch._dynamo.graph_break()
    return eager(y) @ x


@torch._dynamo.disable
def eager(x):
    return x @ x


def reads_a_value(x):
    return x @ x if x.sum().item() > 0 else x


WEIGHTS = Mlp(64, 128)


def by_function(x):
    """Call a model of this module, whose tensors are on the CPU."""
    return WEIGHTS(x)


class Apart(torch.nn.Module):
    """Two equal blocks, whose code torch compiles once, because their caller is not compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Mlp(64, 128) for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            torch._dynamo.graph_break()
            x = layer(x)
        return x


def apart():
    return Apart().bfloat16()


class ReadsWhatItMakes(torch.nn.Module):
    """Layer whose rate is a value of a tensor that the model makes while it is built."""

    def __init__(self) -> None:
        super().__init__()
        self.rate = torch.linspace(0, 0.5, 3)[2].item()
        self.layer = torch.nn.Linear(64, 64)

    def forward(self, x):
        return self.layer(x) * (1 - self.rate)


def reads_what_it_makes():
    return ReadsWhatItMakes().bfloat16()


def draws_until_it_fits():
    layer = torch.nn.Linear(2048, 1024, bias=False, dtype=torch.bfloat16)
    torch.nn.init.trunc_normal_(layer.weight, std=0.02)
    return layer


def reads_what_is_large():
    torch.nn.Linear(2048, 2048).weight.norm().item()


def fails_as_built():
    torch.linspace(0, 1, 4).tolist()
    raise ValueError("no such model")


class WholeStep(torch.nn.Module):
    """A training step whose optimizer makes its state on the GPU."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 32, dtype=torch.bfloat16)
        self.optimizer = torch.optim.AdamW(self.layer.parameters())

    def forward(self, x):
        self.layer(x).float().square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


class ScaledByAnElement(torch.nn.Module):
    """Product of 8-bit floats whose second scale is a view with an offset, which Inductor cannot lower."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scales", torch.ones(2, 1))

    def forward(self, x):
        a = x[0, 0].to(torch.float8_e4m3fn)
        scale_a, scale_b = self.scales[0, 0], self.scales[1, 0]
        return torch._scaled_mm(a, a.t(), scale_a=scale_a, scale_b=scale_b, out_dtype=torch.bfloat16)


def scaled_by_an_element():
    return ScaledByAnElement()


def blocks_that_no_tile_divides(q):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    size = q.shape[2]
    blocks = create_block_mask(_causal, None, None, size, size, device=q.device, BLOCK_SIZE=(64, 32))
    return flex_attention(q, q, q, block_mask=blocks)


def _causal(b, h, q, kv):
    return q >= kv


def asks_for_max_scores(q):
    from torch.nn.attention.flex_attention import AuxRequest, flex_attention

    return flex_attention(q, q, q, return_aux=AuxRequest(max_scores=True))[1].max_scores
