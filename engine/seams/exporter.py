"""An exporter: a table as the files a consumer loads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.table import Table

__all__ = ["Exporter"]


class Exporter(ABC):
    """Writes for one consumer. Pure text: it imports neither torch nor the consumer.

    Example:
        >>> import gemmtune as gt
        >>> class Names(gt.Exporter):
        ...     def export(self, table):
        ...         return {"names.txt": " ".join(row.problem.name for row in table.rows)}
        >>> list(Names().spaces)
        []
    """

    example: ClassVar[tuple[str, Config]] = ("aten", Config({}))
    """A space and a config of it that the consumer can be given: what the conformance suite exports."""

    spaces: ClassVar[tuple[str, ...]] = ()
    """Spaces whose kernels the consumer runs: a table without a choice of one of them is nothing to it. Empty: any."""

    @abstractmethod
    def export(self, table: Table) -> Mapping[str, str]:
        """File name to text, the consumer's loader among them. The same table gives the same text, byte for byte.

        Raises:
            TableError: the table holds what this consumer cannot be given.
        """
