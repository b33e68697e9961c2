"""Rows of the kernels that Inductor generates between the products: their check. Needs the standard library alone."""

import hashlib
import re
from collections.abc import Mapping

from gemmtune.engine.tables.sealed import require_integer, require_object, require_text, shortened

GENERATED = ("generated",)
"""Fields of such rows in `inductor_table.json`."""
_PARAM = re.compile(r"[XYZ]BLOCK|R\d_BLOCK|num_warps|num_stages")
_PIPELINE = {"num_warps", "num_stages"}
_FIELDS = {"name", "config", "facts"}
_LARGEST = 2**20
_NAME = re.compile(r"^def [^(]+\(")


def source_key(sizes: str, signature: str, source: str) -> str:
    """Return the key of a kernel: the SHA-256 of its sizes, its arguments' types and its source without its name.

    `sizes` and `signature` are the texts of Inductor's dictionaries of these names, and the source begins at `def`.
    """
    return hashlib.sha256(f"{sizes}{signature}{_NAME.sub('(', source.strip(), count=1)}".encode()).hexdigest()


def is_config(config: Mapping[str, object]) -> bool:
    """Return whether a config has the params of a plain kernel alone: sizes of blocks, warps and stages."""
    return config.keys() >= _PIPELINE and all(_PARAM.fullmatch(name) for name in config)


def parse_generated(table: Mapping[str, object]) -> Mapping[str, Mapping[str, int]]:
    """Return the config per kernel of a table's fields; a config becomes a part of generated code.

    Raises:
        TypeError, ValueError: a part has the wrong type or value.
    """
    found = {}
    for source, row in require_object("generated", table.get(*GENERATED, {})).items():
        where = f"generated.{source}"
        fields = require_object(where, row, _FIELDS)
        require_text(f"{where}.name", fields["name"])
        where = f"{where}.config"
        config = require_object(where, fields["config"])
        if not is_config(config):
            if missing := sorted(_PIPELINE - config.keys()):
                raise ValueError(f"{where} lacks {', '.join(missing)}")
            others = ", ".join(shortened(name) for name in config if not _PARAM.fullmatch(name))
            raise ValueError(f"{where} names {others}: no block, num_warps or num_stages")
        found[source] = {name: require_integer(f"{where}.{name}", its, 1, _LARGEST) for name, its in config.items()}
    return found
