"""List the tuned problems, and write the campaign file."""

from __future__ import annotations

from block import LLAMA

TUNED = (2, 16, 64, 256, 1024, 4096)
HELD_OUT = {"nt": (28, 80, 448), "nn": (10, 2560)}
"""Held-out m by layout: 5·2^e and 7·2^e, one between any two tuned m, and never probed. Each costs a search."""
FORUM = (3420, 1280)
"""Size (in, out) of a linear layer of github.com/pytorch/pytorch users, called with m of 560, 1024 and 2048."""
FORUM_SIZES = (560, 1024, 2048)
BLOCK_SIZES = (1, 2, 16, 32, 64, 128, 256, 512, 1024, 2048, 3000, 4096)
LAYER_SIZES = (1, 2, 3, 10, 16, 24, 28, 32, 64, 80, 96, 128, 256, 384, 448, 1024, 1536, 2048, 3000, 4096)
"""Sizes m that are tuned, probed, held out, and none of these."""
REHEARSED = (1, 2, 16, 48)
"""Sizes m of a rehearsal without a GPU."""


def campaign(budget: int, seconds: float) -> str:
    """Return the campaign file: forward products and input gradients for ranges of m, m = 1, and the forum's layer.

    Inductor merges the residual after `down` into one addmm whose bias is a matrix. Gradients of weights have a dynamic
    k, and run in the vendor library.
    """
    blocks = []
    for inputs, outputs in LLAMA.layers.values():
        blocks.append(_block(list(TUNED), outputs, inputs, "nt", "mm", dynamic=True, hold_out=list(HELD_OUT["nt"])))
        blocks.append(_block(list(TUNED), inputs, outputs, "nn", "mm", dynamic=True, hold_out=list(HELD_OUT["nn"])))
        blocks.append(_block([1], outputs, inputs, "nt", "mm", dynamic=False, hold_out=[]))
    inputs, outputs = LLAMA.layers["down"]
    held_out = list(HELD_OUT["nt"])
    blocks.append(_block(list(TUNED), outputs, inputs, "nt", "addmm", dynamic=True, hold_out=held_out, bias="matrix"))
    blocks.append(_block([1], outputs, inputs, "nt", "addmm", dynamic=False, hold_out=[], bias="matrix"))
    inputs, outputs = FORUM
    blocks.append(_block([560], outputs, inputs, "nt", "addmm", dynamic=False, hold_out=[]))
    blocks.append(_block([256, 1024, 2048], outputs, inputs, "nt", "addmm", dynamic=True, hold_out=[1792]))
    head = f'space = "triton_mm"\nbudget = {budget}\nseconds = {seconds:g}\nportfolio = true\nranges = true\n'
    return "\n".join([head, *blocks])


def _block(
    m: list[int], n: int, k: int, layout: str, op: str, *, dynamic: bool, hold_out: list[int], bias: str = ""
) -> str:
    lines = ["[[problem]]", f"m = {m}", f"n = {n}", f"k = {k}", f'layout = "{layout}"', f'op = "{op}"']
    lines += [f"dynamic_m = {str(dynamic).lower()}"] if dynamic else []
    lines += [f'bias = "{bias}"'] if bias else []
    lines += [f"hold_out = {hold_out}"] if hold_out else []
    return "\n".join([*lines, ""])
