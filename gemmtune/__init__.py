"""Find the fastest configuration of a GPU kernel for every shape, and ship the answer as a table.

`gemmtune.__all__` is the public API; everything else may change. Importing the package loads neither torch nor any
other optional package: each name is imported when it is first used.

Example:
    >>> import gemmtune as gt
    >>> result = gt.tune(["16x4096x4096:bf16:nt"], backend=gt.landscapes("h200"), budget=16)
    >>> result.best("16x4096x4096:bf16:nt").space
    'triton_mm'
"""

TYPE_CHECKING = False  # typing's name, which checkers take for true: importing typing takes time
if TYPE_CHECKING:
    from gemmtune import testing
    from gemmtune.engine.api.benching import bench
    from gemmtune.engine.api.capturing import capture
    from gemmtune.engine.api.checking import check
    from gemmtune.engine.api.landscapes import landscapes
    from gemmtune.engine.api.replaying import Study, replay
    from gemmtune.engine.api.table import Table, read_table
    from gemmtune.engine.api.tune_result import TuneResult
    from gemmtune.engine.api.tuning import tune
    from gemmtune.engine.api.verifying import verify
    from gemmtune.engine.records.errors import (
        ContractError,
        DeviceError,
        GemmtuneError,
        LandscapeError,
        ProblemError,
        StoreError,
        TableError,
        ToolchainMissing,
        UnknownPlugin,
        UsageError,
    )
    from gemmtune.engine.records.gemm.problem import Problem
    from gemmtune.engine.scheduling.callbacks import Callback
    from gemmtune.engine.seams.exporter import Exporter
    from gemmtune.engine.seams.objective import Objective
    from gemmtune.engine.seams.pruner import Pruner
    from gemmtune.engine.seams.sampler import Sampler
    from gemmtune.engine.seams.space import Space
    from gemmtune.engine.store.database import Database

    __version__: str

__all__ = [
    "Callback",
    "ContractError",
    "Database",
    "DeviceError",
    "Exporter",
    "GemmtuneError",
    "LandscapeError",
    "Objective",
    "Problem",
    "ProblemError",
    "Pruner",
    "Sampler",
    "Space",
    "StoreError",
    "Study",
    "Table",
    "TableError",
    "ToolchainMissing",
    "TuneResult",
    "UnknownPlugin",
    "UsageError",
    "__version__",
    "bench",
    "capture",
    "check",
    "landscapes",
    "read_table",
    "replay",
    "testing",
    "tune",
    "verify",
]

_MODULES = {
    "Callback": "scheduling.callbacks",
    "ContractError": "records.errors",
    "Database": "store.database",
    "DeviceError": "records.errors",
    "Exporter": "seams.exporter",
    "GemmtuneError": "records.errors",
    "LandscapeError": "records.errors",
    "Objective": "seams.objective",
    "Problem": "records.gemm.problem",
    "ProblemError": "records.errors",
    "Pruner": "seams.pruner",
    "Sampler": "seams.sampler",
    "Space": "seams.space",
    "StoreError": "records.errors",
    "Study": "api.replaying",
    "Table": "api.table",
    "TableError": "records.errors",
    "ToolchainMissing": "records.errors",
    "TuneResult": "api.tune_result",
    "UnknownPlugin": "records.errors",
    "UsageError": "records.errors",
    "bench": "api.benching",
    "capture": "api.capturing",
    "check": "api.checking",
    "landscapes": "api.landscapes",
    "read_table": "api.table",
    "replay": "api.replaying",
    "tune": "api.tuning",
    "verify": "api.verifying",
}


def __getattr__(name: str) -> object:
    """Import a public name on its first use (PEP 562)."""
    from importlib import import_module

    found: object
    if name == "__version__":
        found = import_module("importlib.metadata").version("gemmtune")
    elif name == "testing":
        found = import_module("gemmtune.testing")
    elif name in _MODULES:
        found = getattr(import_module(f"gemmtune.engine.{_MODULES[name]}"), name)
    else:
        raise AttributeError(f"module 'gemmtune' has no attribute {name!r}; it has: {', '.join(__all__)}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
