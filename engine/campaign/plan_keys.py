"""Keys of a campaign file, with their defaults, as `gemmtune init` writes them."""

from dataclasses import dataclass
from textwrap import wrap

_COLUMNS = 100
_FRACTION = "fraction, at least 0"


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


_OWN = "beside the campaign file: ./mine.py:Mine"

KEYS = (
    Key("space", "text or list of texts", '"triton_mm"', "space to search, or several; see gemmtune list spaces"),
    Key("sampler", "text", '"transfer"', f"sampler of every task; see gemmtune list samplers; or a class {_OWN}"),
    Key("pruner", "text or list of texts", '"prior"', "pruner, asked before and after each build, or several", "none"),
    Key("objective", "text", '"latency"', "objective to minimise; see gemmtune list objectives"),
    Key("budget", "integer, at least 1", "64", "evaluations per task, failures included"),
    Key("batch", "integer, at least 1", "8", "configs that the sampler is asked for at once"),
    Key("seed", "integer, at least 0", "0", "seed of every random choice"),
    Key("seconds", "number above 0", "3600", "searching ends after so many seconds", "no limit"),
    Key(
        "gpu_seconds",
        "number above 0",
        "7200",
        "searching ends after so many GPU-seconds, wall time x GPUs",
        "no limit",
    ),
    Key(
        "regret",
        "fraction above 0",
        "0.02",
        "a search ends once its best is within this fraction of the best there is",
        "no limit",
    ),
    Key("margin", _FRACTION, "0.02", "lead over the vendor library that a row needs to ship another kernel"),
    Key(
        "portfolio",
        "true, false or a table",
        "false",
        "problems share few configs: true, or a table as in { worst = 0.02, mean = 0.005 }",
    ),
    Key(
        "ranges",
        "true, false or a table",
        "false",
        "rows for ranges of m: true, or a table as in { worst = 0.02 }",
    ),
    Key(
        "hold_out", "list of texts", "[]", "problems that check the ranges, get no row and cost a search; needs ranges"
    ),
)
"""Every key but `problems` and `problem`, which each file needs."""

TABLE_KEYS = (
    Key("portfolio.worst", _FRACTION, "0.02", "largest loss of any one problem"),
    Key("portfolio.mean", _FRACTION, "0.005", "largest weighted mean loss"),
    Key("ranges.worst", _FRACTION, "0.02", "largest loss of a range's kernel at a measured m"),
)
"""Keys of the tables that `portfolio` and `ranges` take."""

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
    Key("op", "text", '"mm"', "operation, by its name in PyTorch: mm, addmm or bmm"),
    Key("dtype", "text", '"bf16"', "type of A, B and output: bf16, fp16, fp32, tf32, e4m3, e5m2 or int8"),
    Key("a_dtype", "text", '"bf16"', "type of A", "`dtype`"),
    Key("b_dtype", "text", '"bf16"', "type of B", "`dtype`"),
    Key("out_dtype", "text", '"bf16"', "type of the output", "`dtype`"),
    Key("acc_dtype", "text", '"fp32"', "type of the accumulator"),
    Key("layout", "text", '"nt"', "layouts of A and B: nn, nt, tn or tt"),
    Key("a_layout", "text", '"n"', "layout of A", "`layout`"),
    Key("b_layout", "text", '"t"', "layout of B", "`layout`"),
    Key("epilogue", "text", '"none"', "operations in the product's kernel, such as add(matrix).relu"),
    Key("bias", "text", '"vector"', "bias of an addmm: vector, of n values, or matrix, of m x n", "vector for addmm"),
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
