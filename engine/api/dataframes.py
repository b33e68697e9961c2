"""Records as a pandas DataFrame; pandas is optional and imported here alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from gemmtune.engine.records.errors import ToolchainMissing

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["dataframe"]


def dataframe(records: Iterable[Mapping[str, object]]) -> DataFrame:
    """Return a DataFrame with one line per record.

    Raises:
        ToolchainMissing: pandas is not installed.
    """
    try:
        from pandas import DataFrame
    except ImportError:
        raise ToolchainMissing("to_dataframe needs pandas: pip install 'gemmtune[study]'") from None
    return DataFrame(list(records))
