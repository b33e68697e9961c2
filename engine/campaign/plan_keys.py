"""Keys of a campaign file, with their defaults, as `gemmtune tune --init` writes them."""

import json
import math
from dataclasses import dataclass
from textwrap import wrap

from gemmtune.engine.campaign.plan import OPTIONS
from gemmtune.engine.io.options import Option, Value, options_of
from gemmtune.engine.seams import registry

_COLUMNS = 100


@dataclass(frozen=True, slots=True)
class Key:
    """Key of a campaign file."""

    name: str
    """Name of the key."""
    kind: str
    """Kind of value that the key takes."""
    value: str
    """Default as TOML; an example where the key has no default."""
    meaning: str
    """Meaning of the key, with the unit of its value."""
    without: str = ""
    """Meaning of a missing key, where `value` is an example; empty where `value` is the default."""

    @property
    def default(self) -> bool:
        """Whether `value` is the default."""
        return not self.without


def _key(option: Option, prefix: str = "") -> Key:
    """Return the key of an option."""
    default, without, bound = option.default, "", ""
    if option.value is Value.LIMITS:
        default = default is not None
    elif option.value is Value.NAMES:
        default, without = (option.shown, "") if default else (registry.names(option.of)[0], "none")
    elif default is None:
        default, without = 3600 if option.value is Value.SECONDS else 0.02, "no limit"
    if option.least > -math.inf:
        bound = f", at least {option.least:g}"
    elif option.above > -math.inf:
        bound = f" above {option.above:g}"
    meaning = option.phrase + _written(option)
    return Key(prefix + option.name, option.value.value + bound, json.dumps(default), meaning, without)


def _written(option: Option) -> str:
    """Return how a campaign file writes the value of an option."""
    listed = f"; see gemmtune list {option.of.__name__.lower()}s; or a class beside the campaign file: ./mine.py:Mine"
    if option.value is Value.LIMITS:
        table = ", ".join(f"{each.name} = {each.default}" for each in options_of(option.of).values())
        return f": true, or a table as in {{ {table} }}"
    return {
        Value.NAME: listed,
        Value.NAMES: f", or several{listed}",
        Value.SAMPLER: listed,
        Value.PROBLEMS: "; or several",
    }.get(option.value, "")


KEYS = tuple(_key(option) for option in OPTIONS.values())
"""Every key but `problems` and `problem`, which each file needs."""

TABLE_KEYS = tuple(
    _key(option, f"{limits.name}.")
    for limits in OPTIONS.values()
    if limits.value is Value.LIMITS
    for option in options_of(limits.of).values()
)
"""Keys of the tables that options with limits take."""

PROBLEM_KEYS = (
    Key(
        "m",
        "integer or list of integers",
        "[16, 64, 256]",
        "rows of A and of the output; one problem per m",
        "required",
    ),
    Key("hold_out", "list of integers", "[40]", "further m that check the ranges", "none"),
    Key("n", "integer", "4096", "columns of B and of the output: the outputs of a linear layer", "required"),
    Key("k", "integer", "4096", "columns of A: the inputs of a linear layer", "required"),
    Key("batch", "integer", "1", "products of a bmm"),
    Key("op", "text", '"mm"', "operation, by its name in PyTorch: mm, addmm, bmm or baddbmm"),
    Key("dtype", "text", '"bf16"', "type of A, B and output: bf16, fp16, fp32, tf32, e4m3, e5m2 or int8"),
    Key("a_dtype", "text", '"bf16"', "type of A", "`dtype`"),
    Key("b_dtype", "text", '"bf16"', "type of B", "`dtype`"),
    Key("out_dtype", "text", '"bf16"', "type of the output", "`dtype`"),
    Key("acc_dtype", "text", '"fp32"', "type of the accumulator"),
    Key("accumulation", "text", '"fast"', "sums of 8-bit floats: fast, or exact in fp32"),
    Key("layout", "text", '"nt"', "layouts of A and B: nn, nt, tn or tt"),
    Key("a_layout", "text", '"n"', "layout of A", "`layout`"),
    Key("b_layout", "text", '"t"', "layout of B", "`layout`"),
    Key("epilogue", "text", '"none"', "operations in the product's kernel, such as add(matrix).relu"),
    Key("bias", "text", '"vector"', "bias: vector, matrix, or per product vectors, matrices", "vector for addmm"),
    Key("alpha", "number", "1", "factor of the product in an addmm or baddbmm"),
    Key("beta", "number", "1", "factor of the bias in an addmm or baddbmm"),
    Key("lda", "integer", "8192", "elements from a row of A to the next, or from a column of layout t", "dense"),
    Key("ldb", "integer", "8192", "elements from a row of B to the next, or from a column of layout t", "dense"),
    Key("batch_stride_a", "integer", "0", "elements from an A of the batch to the next; 0 for one A of all", "dense"),
    Key("batch_stride_b", "integer", "0", "elements from a B of the batch to the next; 0 for one B of all", "dense"),
    Key("dynamic_m", "true or false", "false", "whether the kernel takes m when it is launched"),
    Key("allow_tf32", "true or false", "false", "whether fp32 products may round their operands to tf32"),
    Key("weight", "number above 0", "1", "how often the problem is called, against the others"),
)
"""Keys of a problem in the long form."""

_PROBLEMS = """\
# Problems in their short form: [BATCHx]MxNxK[:DTYPE[:LAYOUT[:OP]]].
problems = ["16x4096x4096:bf16:nt"]

# The long form, with a weight: how often the problem is called, against the others.
# [[problem]]
"""


def campaign_template() -> str:
    """Return a campaign file with every key in a comment, and one problem."""
    lines = ["# Campaign for gemmtune tune. Each key is shown with its default, or with an example where it has none."]
    for key in KEYS:
        meaning = f"{key.meaning}; by default {key.without}" if key.without else key.meaning
        lines += ["", *(f"# {line}" for line in wrap(meaning, _COLUMNS)), f"# {key.name} = {key.value}"]
    problem = (f"# {f'{key.name} = {key.value}':22}# {key.meaning}\n" for key in PROBLEM_KEYS)
    return "\n".join([*lines, "", f"{_PROBLEMS}{''.join(problem)}"])
