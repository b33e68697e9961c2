"""Fields of a case of a user's kernel as text."""

import re

from gemmtune.engine.consumers.triton.contract import VALUE_TEXT
from gemmtune.engine.records.errors import ProblemError


def pairs_text(pairs: tuple[tuple[str, object], ...]) -> str:
    """Return pairs of name and value as `M=4096,N=1024`."""
    return ",".join(f"{name}={value}" for name, value in pairs)


def integers_of(field_name: str, text: str) -> tuple[tuple[str, int], ...]:
    """Return pairs of name and integer from `M=4096,N=1024`; raises ProblemError for any other text."""
    if not re.fullmatch(r"(\w+=-?[0-9]{1,18}(,\w+=-?[0-9]{1,18})*)?", text):
        raise ProblemError(f"{field_name}={text[:80]!r} is not NAME=INTEGER,... of at most 18 digits each")
    return tuple((name, int(value)) for name, value in (part.split("=") for part in text.split(",") if part))


def values_of(field_name: str, text: str) -> tuple[tuple[str, str], ...]:
    """Return pairs of name and text of a value from `n=4096,CAUSAL=True`; raises ProblemError for any other text."""
    pairs = [part.partition("=")[::2] for part in text.split(",")] if text else []
    if not all(name.isidentifier() and VALUE_TEXT.fullmatch(value) for name, value in pairs):
        raise ProblemError(
            f"{field_name}={text[:80]!r} is not NAME=VALUE,... with values such as 4096, True or tl.fp32"
        )
    return tuple(pairs)


def names_of(field_name: str, text: str) -> tuple[str, ...] | None:
    """Return the names of `[n,CAUSAL]`; None of no text; raises ProblemError for any other text."""
    if not re.fullmatch(r"(\[(\w+(,\w+)*)?\])?", text):
        raise ProblemError(f"{field_name}={text[:80]!r} is not [NAME,...]")
    return tuple(filter(None, text[1:-1].split(","))) if text else None
