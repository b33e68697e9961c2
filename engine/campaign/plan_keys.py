"""Keys of a campaign file, with their defaults, as `gemmtune init` writes them."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import wrap

__all__ = ["KEYS", "Key", "campaign_template"]

_COLUMNS = 100


@dataclass(frozen=True, slots=True)
class Key:
    """Key of a campaign file."""

    name: str
    """Name of the key."""
    value: str
    """Default as TOML; an example where the key has no default."""
    meaning: str
    """Meaning of the key, with the unit of its value."""
    default: bool = True
    """Whether `value` is the default."""


KEYS = (
    Key("space", '"triton_mm"', "space to search, or a list of spaces; see gemmtune list spaces"),
    Key("sampler", '"transfer"', "sampler of every task; see gemmtune list samplers"),
    Key("pruner", '"prior"', "pruner, asked before and after each build, or a list; by default none", default=False),
    Key("objective", '"latency"', "objective to minimise; see gemmtune list objectives"),
    Key("budget", "64", "evaluations per task, failures included"),
    Key("batch", "8", "configs that the sampler is asked for at once"),
    Key("seed", "0", "seed of every random choice"),
    Key("seconds", "3600", "searching ends after so many seconds; by default no limit", default=False),
    Key("gpu_seconds", "7200", "searching ends after so many GPU-seconds, wall time x GPUs; no limit", default=False),
    Key("regret", "0.02", "a search ends once its best is within this fraction of the best; no limit", default=False),
    Key("margin", "0.02", "lead over the vendor library, as a fraction, that a row needs to ship another kernel"),
    Key("portfolio", "false", "problems share few configs: true, or { worst = 0.02, mean = 0.005 }, the most lost"),
    Key("ranges", "false", "rows for ranges of m: true, or { worst = 0.02, buckets = false }"),
    Key("hold_out", "[]", "problems that check the ranges, get no row and cost a search; needs ranges"),
)
"""Every key but `problems` and `problem`, which each file needs."""

_PROBLEMS = """\
# Problems in their short form: [BATCHx]MxNxK[:DTYPE[:LAYOUT[:OP]]].
problems = ["16x4096x4096:bf16:nt"]

# The long form, with a weight: how often the problem is called, against the others.
# [[problem]]
# m = [16, 64, 256]     # one problem per m
# hold_out = [40]       # further m that check the ranges
# n = 4096              # outputs of a linear layer
# k = 4096              # inputs of a linear layer
# batch = 1             # products of a bmm
# op = "mm"             # mm, addmm or bmm
# dtype = "bf16"        # bf16, fp16, fp32, e4m3, e5m2 or int8
# layout = "nt"         # nn, nt, tn or tt
# dynamic_m = false     # whether the kernel takes m when it is launched
# weight = 1
"""


def campaign_template() -> str:
    """Return a campaign file with every key in a comment, and one problem."""
    lines = ["# Campaign for gemmtune tune. Each key is shown with its default, or with an example where it has none."]
    for key in KEYS:
        lines += ["", *(f"# {line}" for line in wrap(key.meaning, _COLUMNS)), f"# {key.name} = {key.value}"]
    return "\n".join([*lines, "", _PROBLEMS])
