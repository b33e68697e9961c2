"""Layers of serving engines: token counts, and names that state every size behind a letter."""

import re
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from gemmtune.engine.records.errors import ProblemError
from gemmtune.engine.records.gemm.text import parsed_field
from gemmtune.engine.records.workload import Workload, refuse_sizes, refuse_unknown

SCALE_BLOCK = 128
"""Rows and columns of a weight that share a scale, and elements of an activation's row that do."""

_MOST = 2**20


@dataclass(frozen=True, slots=True)
class Layer(Workload):
    """Layer of a serving engine on one device.

    Two layers are equal if a kernel cannot tell them apart, so their weight is not compared.
    """

    letters: ClassVar[Mapping[str, str]]
    """Field of each letter in a layer's name, the tokens first."""
    form: ClassVar[str]
    """Instruction to write a layer's name, for messages."""

    constants: ClassVar[Mapping[str, int]] = {}
    """Arguments that the engine passes to the kernel from an entry of its tuned file alone, beside the config."""

    tokens: int
    """Tokens of one step; at least 1."""
    weight: float = field(default=1.0, compare=False, kw_only=True)
    """Call frequency in the user's program, relative to the other workloads."""

    def __post_init__(self) -> None:
        """Refuse sizes that no layer has."""
        refuse_sizes(self, _MOST)
        self.refuse()

    @abstractmethod
    def refuse(self) -> None:
        """Raise a ProblemError for sizes that are no layer together, or for another malformed field."""

    @property
    def name(self) -> str:
        """Canonical text, the kind and every size, which `parse` reads."""
        return ":".join([self.kind, *(f"{letter}{getattr(self, name)}" for letter, name in self.letters.items())])

    @property
    def sizes(self) -> Mapping[str, int]:
        """Sizes in the order of the name, the tokens first."""
        return {name: getattr(self, name) for name in self.letters.values()}

    @classmethod
    def from_fields(cls, record: Mapping[str, str]) -> Self:
        """Return the layer of text fields; all but the sizes may be missing.

        Raises:
            ProblemError: a field is unknown, missing or malformed.
        """
        refuse_unknown(cls, record)
        if missing := [name for name in cls.letters.values() if name not in record]:
            raise ProblemError(f"{missing[0]} is missing: {cls.form}")
        types = {**dict.fromkeys(cls.letters.values(), int), "weight": float}
        numbers = {name: parsed_field(name, record[name], types) for name in types if name in record}
        return cls(**numbers, **cls.traits_of(record))

    @classmethod
    def traits_of(cls, record: Mapping[str, str]) -> Mapping[str, Any]:
        """Return the values of the fields that are no sizes; by default there are none."""
        return {}

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a name; see `form`; raises ProblemError if the text is malformed or a size is out of bounds."""
        record: dict[str, str] = {}
        for part in text.strip().lower().removeprefix(f"{cls.kind}:").split(":"):
            size = re.fullmatch(r"([a-z])(\d+)", part)
            name = cls.letters.get(size[1], "") if size else cls.field_of(part)
            if not name:
                raise ProblemError(f"{text[:200]!r}: {part!r} is no size: {cls.form}")
            if name in record:
                raise ProblemError(f"{text[:200]!r} gives {name} twice: {cls.form}")
            record[name] = size[2] if size else part
        try:
            return cls.from_fields(record)
        except ProblemError as error:
            raise ProblemError(f"{text[:200]!r}: {error}") from None

    @classmethod
    def field_of(cls, part: str) -> str:
        """Return the field of a part of a name that is no size; by default none."""
        return ""

    @property
    def range_size(self) -> str:
        """Tokens, of which one row of the table may serve a range."""
        return "tokens"

    @property
    def series_name(self) -> str:
        """Name without a number of tokens, for people."""
        return self.name.replace(f":m{self.tokens}:", ":m:", 1)

    def resized(self, size: int, weight: float | None = None) -> Self:
        """Return the layer with another number of tokens, and another weight unless it is None."""
        return replace(self, tokens=size, weight=self.weight if weight is None else weight)
