"""Settings of calls of a language model, and their text: `tokens=1 batch=16 weight=512`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from itertools import product

from gemmtune.engine.consumers.inductor.capture.model_calls import CallLike, weight_and_rest
from gemmtune.engine.io.numbers import checked
from gemmtune.engine.records.errors import UsageError, did_you_mean

PREFIX = "hf:"
"""Beginning of a model's name."""
CONTEXT = 2048
"""Tokens that a cache holds by default."""


@dataclass(frozen=True, slots=True)
class CallSettings:
    """Sizes of a call of a language model."""

    tokens: int | None = None
    """Tokens per sequence: 1 decodes with a cache, more are a prompt; None for a model that takes none."""
    batch: int = 1
    """Number of sequences, or of pictures, per call."""
    context: int = CONTEXT
    """Tokens that the cache of a decoding step holds."""
    weight: float = 1.0
    """Call frequency, relative to the model's other calls."""

    def name(self, *, has_cache: bool = False) -> str:
        """Return the text of the settings that the call depends on."""
        tokens = [] if self.tokens is None else [f"tokens={self.tokens}"]
        return " ".join([*tokens, f"batch={self.batch}", *([f"context={self.context}"] if has_cache else [])])


def settings_of(
    tokens: Iterable[int], batches: Iterable[int], context: int | None, calls: Iterable[CallLike]
) -> tuple[CallSettings, ...]:
    """Return the settings of calls: each number of tokens at each batch size, and those of the texts.

    Raises:
        UsageError: a text is malformed, or a number is below 1.
    """
    base = CallSettings(context=CONTEXT if context is None else checked(context, "context", int, least=1))
    counts: list[int | None] = [checked(each, "tokens", int, least=1) for each in tokens]
    sizes = [checked(each, "batch", int, least=1) for each in batches]
    texts = [_parsed(each, base) for each in calls]
    if not texts or counts or sizes:
        pairs = product(counts or [None], sizes or [1])
        texts = [*(replace(base, tokens=each, batch=size) for each, size in pairs), *texts]
    return tuple(texts)


def _parsed(call: CallLike, base: CallSettings) -> CallSettings:
    parts, weight = weight_and_rest(call.split() if isinstance(call, str) else list(call))
    known = [field.name for field in fields(CallSettings) if field.name != "weight"]
    found: dict[str, int] = {}
    for part in map(str, parts):
        key, equals, value = part.partition("=")
        if key not in known or not equals:
            way = f"{did_you_mean(key, known)}a call of a model by name is tokens=16 batch=4 context=2048 weight=1"
            raise UsageError(f"call {' '.join(map(str, parts))[:200]!r} has {part[:80]!r}: {way}")
        found[key] = checked(int(value) if value.isdecimal() else value, key, int, least=1)
    return replace(base, weight=weight, **found)
