"""A tuned file of an engine: one entry per token count, and which entry the engine runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from gemmtune.engine.consumers.serving.contract.file_name import Engine, FileName, Kernel
from gemmtune.engine.io.reading import parse_json
from gemmtune.engine.records.errors import TableError

_VERSION_KEY = "triton_version"


@dataclass(frozen=True, slots=True)
class Entry:
    """Config for one token count."""

    tokens: int
    """Token count that the config was tuned at."""
    config: Mapping[str, object] | None
    """Keyword arguments of the kernel; None where the engine is to take another kernel."""


@dataclass(frozen=True, slots=True)
class TunedFile:
    """Content of a tuned file."""

    path: str
    """Path of the file below the audited folder, with slashes."""
    name: FileName
    """Facts of its name."""
    entries: tuple[Entry, ...]
    """Entries in the file's order."""
    triton: str
    """Version of Triton that made the entries, as the file or its folder states it; empty if neither does."""
    odd_keys: tuple[str, ...]
    """Keys that the engine cannot read as token counts, in the file's order."""
    sha256: str
    """SHA-256 of the file's bytes."""

    def entry(self, tokens: int) -> Entry:
        """Return the entry that the engine runs for a token count."""
        return nearest(self.entries, tokens)


def moe_swaps(capability: tuple[int, int], rows: int, columns: int) -> bool:
    """Return whether both engines' MoE kernels in fp8 swap A and B for a tile: on sm_90, if it is flat and wide."""
    return capability == (9, 0) and rows < 64 and columns >= 64


def nearest(entries: tuple[Entry, ...], tokens: int) -> Entry:
    """Return the entry with the nearest token count, the earlier one of two; both engines look up in this way."""
    return min(entries, key=lambda entry: abs(entry.tokens - tokens))


def parse_file(path: str, name: FileName, content: bytes) -> TunedFile:
    """Return the content of a tuned file; raises TableError if the content is no JSON object of configs."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as refused:
        raise TableError(f"{path} is not text in UTF-8 ({refused})") from None
    fields = parse_json(text, path, TableError)
    if not isinstance(fields, dict):
        raise TableError(f"{path} holds no object of configs by token count, but a {type(fields).__name__}")
    # vLLM's look-up for MoE layers alone drops this key; every other one fails at it.
    drops = name.engine is Engine.VLLM and name.kernel is Kernel.MOE
    version = fields.pop(_VERSION_KEY, "") if drops else ""
    odd = tuple(key for key in fields if not _is_integer(key))
    entries = []
    for key, config in fields.items():
        if key in odd:
            continue
        if config is not None and not isinstance(config, dict):
            raise TableError(f"{path}: token count {key} has no config, but a {type(config).__name__}")
        entries.append(Entry(int(key), config))
    triton = name.triton or str(version)
    return TunedFile(path, name, tuple(entries), triton, odd, sha256(content).hexdigest())


def _is_integer(key: str) -> bool:
    try:
        int(key)
    except ValueError:
        return False
    return True
