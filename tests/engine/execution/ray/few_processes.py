"""Start clusters without the processes of Ray that no test looks at: each imports Ray, for half a second of a core.

They serve the dashboard, scale machines of a cloud, and pass the output of workers on.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from ray._private.node import Node

_UNUSED = ("start_api_server", "start_log_monitor", "start_monitor")


def few_processes() -> AbstractContextManager[Any]:
    """Start clusters without these processes while the block runs."""
    return patch.multiple(Node, **dict.fromkeys(_UNUSED, _nothing))


def _nothing(*_: object, **__: object) -> None:
    pass
