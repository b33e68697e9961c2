"""One file with a consumer's tables of several GPUs, and the choice among them. Needs the standard library alone."""

import json
import re
from collections.abc import Mapping
from typing import Any

_BUNDLE = 1
_BEGINS = re.compile(rb'\s*\{\s*"bundle":')


def bundle_text(tables: Mapping[str, str]) -> str:
    """Return the text of a bundle; the tables are sealed JSON texts by the name of their GPU."""
    record = {"bundle": _BUNDLE, "tables": {gpu: json.loads(text) for gpu, text in tables.items()}}
    return json.dumps(record, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def picked(content: bytes, device: str | None = None) -> tuple[bytes, str]:
    """Return the table of one GPU in a file, and the names of all its GPUs if none of them is that GPU, else no text.

    A file of one table is returned as it is, and so is the first table if none fits: its rows apply on no other GPU.

    Args:
        content: bytes of a bundle or of one table.
        device: name of the GPU; by default that of torch's current one.

    Raises:
        TypeError, ValueError: the file is a bundle of another schema, or damaged.
    """
    if _BEGINS.match(content) is None:
        return content, ""
    record = json.loads(content)
    tables: Any = record.get("tables")
    if record["bundle"] != _BUNDLE or not isinstance(tables, dict) or not tables:
        raise ValueError(f"not a bundle of schema {_BUNDLE}: use the loader that was exported beside it")
    present = device or _present()
    first = next(iter(tables))
    found = json.dumps(tables.get(present, tables[first]), indent=2, ensure_ascii=False).encode()
    return found, "" if present in tables else " or ".join(tables)


def _present() -> str | None:
    """Return the name of torch's current GPU; None without torch or a GPU."""
    try:
        import torch
    except ModuleNotFoundError:
        return None
    return torch.cuda.get_device_name() if torch.cuda.is_available() else None
