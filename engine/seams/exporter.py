"""Contract of an exporter, which writes a table as the files that a consumer loads."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.table import Table


class Exporter(ABC):
    """Writer of files for one consumer, as pure text: it imports neither torch nor the consumer.

    Example:
        >>> import gemmtune as gt
        >>> class ProblemNames(gt.Exporter):
        ...     def export(self, table):
        ...         return {"problems.txt": " ".join(row.problem.name for row in table.rows)}
        >>> ProblemNames().export(gt.testing.example_table())
        {'problems.txt': '16x4096x4096:bf16:nt 2048x4096x4096:bf16:nt 512x1280x3424:bf16:nn'}
        >>> gt.testing.check_exporter(ProblemNames)
    """

    example: ClassVar[tuple[str, Config]] = ("aten", Config({}))
    """Name of a space and a config of it that the consumer supports, which the conformance checks export."""

    example_problems: ClassVar[tuple[str, ...]] = (
        "16x4096x4096:bf16:nt",
        "2048x4096x4096:bf16:nt",
        "512x1280x3424:bf16:nn",
    )
    """Names of at least two problems that the example is exported for."""

    workloads: ClassVar[tuple[str, ...]] = ("gemm",)
    """Kinds of workloads that the consumer runs; `export` gets no row of another kind."""

    spaces: ClassVar[tuple[str, ...]] = ()
    """Names of the spaces whose kernels the consumer runs; empty for any space."""

    on_request: ClassVar[bool] = False
    """Whether `gemmtune export` alone writes the files, and a campaign does not."""

    @abstractmethod
    def export(self, table: Table) -> Mapping[str, str]:
        """Return the text of each file by its path below the consumer's folder, the consumer's loader included.

        Equal tables must give equal texts, byte for byte.

        Raises:
            TableError: the table has a row that this consumer does not support; the message names space and problem.
        """

    def left_out(self, table: Table) -> str:
        """Return a line that names the choices that the consumer cannot run, so that others stand for them."""
        return ""

    def shared(self, exports: Sequence[Mapping[str, str]]) -> Mapping[str, str]:
        """Return the files that serve the tables of several GPUs in one folder, where those of one table would not do.

        Args:
            exports: what `export` returned for each GPU's table.
        """
        return {}
