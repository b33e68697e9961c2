"""Rules that one tuned file must keep, each stated once."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from gemmtune.engine.consumers.serving.contract.devices import device_of, misspelled
from gemmtune.engine.consumers.serving.contract.file_name import TUNED_TOKENS, Engine, Kernel
from gemmtune.engine.consumers.serving.contract.tuned_file import Entry, TunedFile, moe_swaps, nearest
from gemmtune.engine.consumers.serving.values import clamped_depth, integer_of, refused_values
from gemmtune.engine.toolchain.triton_tiles import least_converted_bytes, least_shared_bytes

_FAR = 4.0
"""Ratio of token counts beyond which an entry says nothing about a token count that the tuner measures."""
_DISTANT = 2.0
"""Ratio that the tuner's own list of token counts keeps everywhere."""
_MOST_TOKENS = 8192
"""Largest token count that is looked up: a usual limit of tokens per step."""
_NEEDED: tuple[str, ...] = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M")
_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "launch_cooperative_grid", "launch_pdl")
"""Options that Triton takes beside a kernel's arguments on a NVIDIA GPU."""
_EXTRA = {
    (Engine.VLLM, Kernel.MOE): ("SPLIT_K",),
    (Engine.SGLANG, Kernel.MOE): ("USE_TMA",),
    (Engine.VLLM, Kernel.LINEAR): (),
    (Engine.SGLANG, Kernel.LINEAR): ("SWAP_AB", "SPLIT_K"),
}
_ITEMSIZES = {
    **{"": (2, 2), "fp8_w8a8": (1, 1), "int8_w8a8": (1, 1), "float32": (4, 4)},
    **{"int8_w8a16": (2, 1), "int4_w4a16": (2, 1)},
}
"""Bytes per element of both operands; int4 weights have two of them in one."""
_NARROW = 128
"""Columns of a tile that an earlier tuner of vLLM did not go below."""


class Level(StrEnum):
    """Severity of a finding."""

    FAULT = "fault"
    """The engine fails, computes a wrong result, or runs a config that was tuned for other work."""
    ADVICE = "advice"
    """The engine runs, and may be slower than it could be."""


class Rule(StrEnum):
    """Rule that a file can break."""

    UNREADABLE = "unreadable file"
    ODD_KEYS = "non-integer keys"
    NEVER_READ = "name never read"
    MISSING_PARAMS = "missing parameters"
    UNKNOWN_PARAMS = "unknown parameters"
    VALUES = "values no launch takes"
    WRONG_SCALES = "tile over the block of scales"
    SHARED_MEMORY = "shared memory"
    MISSING_KEYS = "missing keys"
    DISTANT = "tokens far from any key"
    CLAMPED = "clamped tiles"
    NO_VERSION = "no Triton version"
    OTHER_VERSION = "other Triton version"
    STALE = "stale entries"
    WIDE_ONLY = "no BLOCK_SIZE_N below 128"
    COPIED = "copied file"
    DOWN_ROWS = "rows differ from the first GEMM's"
    NO_SPLIT_K = "no SPLIT_K"


RULES: dict[Rule, tuple[Level, str]] = {
    Rule.UNREADABLE: (Level.FAULT, "the engine fails when it reads the file"),
    Rule.ODD_KEYS: (Level.FAULT, "the engine fails when it reads the file: it takes each key for a token count"),
    Rule.NEVER_READ: (Level.ADVICE, "no layer looks for this name: the file has no effect"),
    Rule.MISSING_PARAMS: (Level.FAULT, "the launch fails: the kernel has no value for an argument"),
    Rule.UNKNOWN_PARAMS: (Level.FAULT, "the launch fails: neither the kernel nor Triton knows the argument"),
    Rule.VALUES: (Level.FAULT, "the look-up or the launch fails: the kernel cannot be compiled with such a value"),
    Rule.WRONG_SCALES: (Level.FAULT, "a step over k applies one scale to elements that have several"),
    Rule.SHARED_MEMORY: (Level.FAULT, "the launch fails: a block of this device has less shared memory"),
    Rule.MISSING_KEYS: (Level.FAULT, "the engine runs a config tuned for another number of tokens"),
    Rule.DISTANT: (Level.ADVICE, "between two keys, the nearest one was tuned at over twice or under half the tokens"),
    Rule.CLAMPED: (Level.ADVICE, "the kernel runs another tile than the file names"),
    Rule.NO_VERSION: (Level.ADVICE, "nobody can tell which compiler made the entries"),
    Rule.OTHER_VERSION: (Level.ADVICE, "the entries were measured with another compiler"),
    Rule.STALE: (Level.ADVICE, "a config that was measured on this device is faster"),
    Rule.WIDE_ONLY: (Level.ADVICE, "narrow tiles were never tried; on Hopper they win at small batches"),
    Rule.COPIED: (Level.ADVICE, "the bytes are those of another size's or device's file"),
    Rule.DOWN_ROWS: (Level.ADVICE, "the engine replaces BLOCK_SIZE_M by the first GEMM's, untuned"),
    Rule.NO_SPLIT_K: (Level.ADVICE, "vLLM 0.33 has no value of its own for it, and fails; SGLang fails at one"),
}
"""Severity and consequence of each rule."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule of one file."""

    path: str
    """Path of the file."""
    rule: Rule
    """Rule that is broken."""
    found: str
    """Values that break it, with the bound."""
    tokens: tuple[int, ...] = ()
    """Token counts of the entries that break it; empty where the whole file does."""

    @property
    def level(self) -> Level:
        """Severity of the rule."""
        return RULES[self.rule][0]


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings sorted by path; those of one file in the order of the rules."""
    order = list(Rule)
    return tuple(sorted(findings, key=lambda each: (each.path, order.index(each.rule))))


def examine(file: TunedFile, triton: str = "") -> list[Finding]:
    """Return the rules that a file breaks by itself; `triton` is the release that the engine requires, if known."""
    findings = []
    for rule, check in _CHECKS.items():
        findings += [Finding(file.path, rule, found, tokens) for tokens, found in check(file)]
    return findings + list(_versions(file, triton))


_Found = tuple[tuple[int, ...], str]
"""Token counts of entries and their fault."""


def _odd_keys(file: TunedFile) -> Iterator[_Found]:
    if file.odd_keys:
        yield (), f"keys {', '.join(map(repr, file.odd_keys))} are no token counts"


def _never_read(file: TunedFile) -> Iterator[_Found]:
    if misspelling := misspelled(file.name):
        yield (), misspelling
    elif not file.name.is_read:
        dtype = f"dtype={file.name.dtype}" if file.name.dtype else "no dtype"
        block = f" with block_shape {list(file.name.block)}" if file.name.block else ""
        yield (), f"{dtype}{block} is no name that {file.name.engine} builds for a {file.name.kernel} kernel"


def _missing_params(file: TunedFile) -> Iterator[_Found]:
    # SGLang's kernel for scales per channel takes no group of tiles.
    needed = _NEEDED[:3] if file.name.dtype.endswith("channelwise") else _NEEDED
    if (file.name.engine, file.name.dtype) == (Engine.VLLM, "int4_w4a16"):
        needed = ("BLOCK_SIZE_M", "GROUP_SIZE_M")  # vLLM fills in columns and depth where one is missing
    yield from _by_text(
        (entry, ", ".join(missing))
        for entry in file.entries
        if entry.config is not None and (missing := [name for name in needed if name not in entry.config])
    )


def _no_split_k(file: TunedFile) -> Iterator[_Found]:
    if (file.name.engine, file.name.dtype) == (Engine.VLLM, "int4_w4a16"):
        text = "the kernel for GPTQ and AWQ models takes SPLIT_K from the file alone"
        yield from _by_text((each, text) for each in file.entries if each.config and "SPLIT_K" not in each.config)


def _unknown_params(file: TunedFile) -> Iterator[_Found]:
    if not file.name.device.startswith("NVIDIA_"):
        return  # other backends of Triton have options of their own
    known = {*_NEEDED, *_OPTIONS, *_EXTRA[file.name.engine, file.name.kernel]}
    yield from _by_text(
        (entry, ", ".join(unknown))
        for entry in file.entries
        if entry.config is not None and (unknown := sorted(set(entry.config) - known))
    )


def _wrong_scales(file: TunedFile) -> Iterator[_Found]:
    if not _is_clamped_by_kernel(file):
        states_depth = file.name.kernel is Kernel.LINEAR or file.name.down
        yield from _deep_tiles(file, file.name.sizes[1] if states_depth else None)


def _clamped(file: TunedFile) -> Iterator[_Found]:
    if _is_clamped_by_kernel(file):
        yield from _deep_tiles(file, None)
    if file.name.engine is Engine.SGLANG and file.name.kernel is Kernel.LINEAR and file.name.block is not None:
        depth = file.name.block[1]
        yield from _by_text(
            (entry, f"BLOCK_SIZE_K {block_k} does not divide the block of {depth}")
            for entry in file.entries
            if (block_k := integer_of(entry, "BLOCK_SIZE_K")) and block_k < depth and depth % block_k
        )


def _is_clamped_by_kernel(file: TunedFile) -> bool:
    return file.name.engine is Engine.VLLM and file.name.kernel is Kernel.MOE


def _deep_tiles(file: TunedFile, depth: int | None) -> Iterator[_Found]:
    """Yield the tiles that hold elements of several scales in a product of that depth; None for any depth."""
    if file.name.block is None:
        return
    block = file.name.block[1]
    yield from _by_text(
        (entry, f"BLOCK_SIZE_K {block_k} > {block}, the block of scales")
        for entry in file.entries
        if (block_k := integer_of(entry, "BLOCK_SIZE_K")) and min(block_k, depth or block_k) > block
    )


def _shared_memory(file: TunedFile) -> Iterator[_Found]:
    device, itemsizes = device_of(file.name.device), _ITEMSIZES.get(file.name.dtype)
    if device is None or itemsizes is None:
        return
    yield from _by_text(
        (entry, f"at least {needed} B of shared memory > {device.shared_bytes} B per block of {file.name.device}")
        for entry in file.entries
        if (needed := _shared_bytes(file, entry, device.capability, itemsizes)) > device.shared_bytes
    )


def _shared_bytes(file: TunedFile, entry: Entry, capability: tuple[int, int] | None, itemsizes: tuple[int, int]) -> int:
    tile = [integer_of(entry, f"BLOCK_SIZE_{axis}") for axis in "MNK"]
    stages = integer_of(entry, "num_stages")
    if not all(tile) or not stages:
        return 0
    block_m, block_n = tile[:2]
    block_k = clamped_depth(file.name, tile[2])
    if capability is None:  # on AMD's GPUs the engines' own tuners count one buffer per operand of one type
        return 0 if file.name.dtype.endswith("a16") else block_k * (block_m + block_n) * itemsizes[0]
    if file.name.dtype == "int4_w4a16":
        return least_converted_bytes(capability, (block_m, block_n, block_k), stages, staged=False)
    swaps = file.name.dtype == "fp8_w8a8" and moe_swaps(capability, block_m, block_n)
    if file.name.kernel is Kernel.LINEAR and entry.config is not None:
        swaps = bool(entry.config.get("SWAP_AB"))
    rows = block_n if swaps else block_m
    return least_shared_bytes(capability, (block_m, block_n, block_k), stages, itemsizes, rows)


def _missing_keys(file: TunedFile) -> Iterator[_Found]:
    if not file.entries:
        yield (), "it has no entry"
        return
    far = [tokens for tokens in TUNED_TOKENS if _ratio(file.entries, tokens) > _FAR]
    if far:
        worst = max(far, key=lambda tokens: _ratio(file.entries, tokens))
        keys = sorted(entry.tokens for entry in file.entries)
        listed = ", ".join(map(str, keys[:6])) + (f", … {keys[-1]}" if len(keys) > 6 else "")
        yield (
            (),
            (
                f"{len(far)} of the {len(TUNED_TOKENS)} token counts of the tuner have no key within {_FAR:g}×: "
                f"{worst} runs the entry of {nearest(file.entries, worst).tokens}; keys {listed}"
            ),
        )


def _distant(file: TunedFile) -> Iterator[_Found]:
    if not file.entries or next(_missing_keys(file), None) is not None:
        return
    worst = max(_candidates(file.entries), key=lambda tokens: _ratio(file.entries, tokens))
    if _ratio(file.entries, worst) > _DISTANT:
        yield (), f"{worst} tokens run the entry of {nearest(file.entries, worst).tokens}"


def _wide_only(file: TunedFile) -> Iterator[_Found]:
    device, name = device_of(file.name.device), file.name
    hopper_fp8 = name.kernel is Kernel.MOE and name.dtype == "fp8_w8a8" and name.block is not None
    if not hopper_fp8 or device is None or device.capability != (9, 0) or not file.entries:
        return
    narrowest = min(integer_of(entry, "BLOCK_SIZE_N") or _NARROW for entry in file.entries)
    if narrowest >= _NARROW:
        yield (), f"the narrowest of {len(file.entries)} tiles has {narrowest} columns"


def _versions(file: TunedFile, triton: str) -> Iterator[Finding]:
    has_place = file.name.kernel is Kernel.MOE  # the linear files have no place for a version
    if has_place and not file.triton:
        yield Finding(file.path, Rule.NO_VERSION, "neither the file nor its folder names a version of Triton")
    elif has_place and triton and file.triton.split(".")[:2] != triton.split(".")[:2]:
        yield Finding(file.path, Rule.OTHER_VERSION, f"made with Triton {file.triton}; the engine requires {triton}")


def _ratio(entries: tuple[Entry, ...], tokens: int) -> float:
    """Return the ratio of a token count and its key; 1 between two keys of one config, which are a range's ends."""
    below = max((entry for entry in entries if entry.tokens <= tokens), key=lambda each: each.tokens, default=None)
    above = min((entry for entry in entries if entry.tokens >= tokens), key=lambda each: each.tokens, default=None)
    if below is not None and above is not None and below.config == above.config:
        return 1.0
    key = max(1, nearest(entries, tokens).tokens)
    return max(key / tokens, tokens / key)


def _candidates(entries: tuple[Entry, ...]) -> list[int]:
    """Return the token counts at which the distance to the nearest key can be largest: both sides of each middle."""
    keys = sorted({entry.tokens for entry in entries})
    middles = [(low + high) // 2 + offset for low, high in pairwise(keys) for offset in (0, 1)]
    return [1, *(tokens for tokens in middles if 1 <= tokens <= _MOST_TOKENS), _MOST_TOKENS]


def _by_text(faults: Iterator[tuple[Entry, str]]) -> Iterator[_Found]:
    """Yield each fault once, with the token counts of all entries that have it."""
    tokens: dict[str, list[int]] = {}
    for entry, text in faults:
        tokens.setdefault(text, []).append(entry.tokens)
    for text, of in tokens.items():
        yield tuple(sorted(of)), text


_CHECKS: dict[Rule, Callable[[TunedFile], Iterator[_Found]]] = {
    Rule.ODD_KEYS: _odd_keys,
    Rule.NEVER_READ: _never_read,
    Rule.MISSING_PARAMS: _missing_params,
    Rule.UNKNOWN_PARAMS: _unknown_params,
    Rule.VALUES: lambda file: _by_text(refused_values(file)),
    Rule.WRONG_SCALES: _wrong_scales,
    Rule.SHARED_MEMORY: _shared_memory,
    Rule.MISSING_KEYS: _missing_keys,
    Rule.DISTANT: _distant,
    Rule.CLAMPED: _clamped,
    Rule.WIDE_ONLY: _wide_only,
    Rule.NO_SPLIT_K: _no_split_k,
}
