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
    from gemmtune.engine.api.configs.measuring import measure
    from gemmtune.engine.api.landscapes import landscapes, write_landscapes
    from gemmtune.engine.api.replaying import Study, read_study, replay
    from gemmtune.engine.api.table import Table, read_table
    from gemmtune.engine.api.tune_result import TuneResult
    from gemmtune.engine.api.tuning import tune
    from gemmtune.engine.api.verifying import verify
    from gemmtune.engine.consumers.serving.models.campaign import engine_problems
    from gemmtune.engine.records.artifact import Artifact, Toolchain
    from gemmtune.engine.records.config import Config, Param
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
    from gemmtune.engine.records.landscape import Landscape, Point
    from gemmtune.engine.records.measurement import Measurement, Status, Trial
    from gemmtune.engine.records.search import Prior, Search
    from gemmtune.engine.records.task import Task
    from gemmtune.engine.records.verdict import Verdict
    from gemmtune.engine.scheduling.callbacks import Callback
    from gemmtune.engine.seams.exporter import Exporter
    from gemmtune.engine.seams.objective import Objective
    from gemmtune.engine.seams.pruner import Candidate, Pruner
    from gemmtune.engine.seams.sampler import Sampler
    from gemmtune.engine.seams.sampler_options import sampler
    from gemmtune.engine.seams.space import BuildError, Space
    from gemmtune.engine.store.database import Database
    from gemmtune.engine.studies.own_evaluation import AskTell

    __version__: str

__all__ = [
    "Artifact",
    "AskTell",
    "BuildError",
    "Callback",
    "Candidate",
    "Config",
    "ContractError",
    "Database",
    "DeviceError",
    "Exporter",
    "GemmtuneError",
    "Landscape",
    "LandscapeError",
    "Measurement",
    "Objective",
    "Param",
    "Point",
    "Prior",
    "Problem",
    "ProblemError",
    "Pruner",
    "Sampler",
    "Search",
    "Space",
    "Status",
    "StoreError",
    "Study",
    "Table",
    "TableError",
    "Task",
    "Toolchain",
    "ToolchainMissing",
    "Trial",
    "TuneResult",
    "UnknownPlugin",
    "UsageError",
    "Verdict",
    "__version__",
    "bench",
    "capture",
    "check",
    "engine_problems",
    "landscapes",
    "measure",
    "read_study",
    "read_table",
    "replay",
    "sampler",
    "testing",
    "tune",
    "verify",
    "write_landscapes",
]

_MODULES = {
    "Artifact": "records.artifact",
    "AskTell": "studies.own_evaluation",
    "BuildError": "seams.space",
    "Callback": "scheduling.callbacks",
    "Candidate": "seams.pruner",
    "Config": "records.config",
    "ContractError": "records.errors",
    "Database": "store.database",
    "DeviceError": "records.errors",
    "Exporter": "seams.exporter",
    "GemmtuneError": "records.errors",
    "Landscape": "records.landscape",
    "LandscapeError": "records.errors",
    "Measurement": "records.measurement",
    "Objective": "seams.objective",
    "Param": "records.config",
    "Point": "records.landscape",
    "Prior": "records.search",
    "Problem": "records.gemm.problem",
    "ProblemError": "records.errors",
    "Pruner": "seams.pruner",
    "Sampler": "seams.sampler",
    "Search": "records.search",
    "Space": "seams.space",
    "Status": "records.measurement",
    "StoreError": "records.errors",
    "Study": "api.replaying",
    "Table": "api.table",
    "TableError": "records.errors",
    "Task": "records.task",
    "Toolchain": "records.artifact",
    "ToolchainMissing": "records.errors",
    "Trial": "records.measurement",
    "TuneResult": "api.tune_result",
    "UnknownPlugin": "records.errors",
    "UsageError": "records.errors",
    "Verdict": "records.verdict",
    "bench": "api.benching",
    "capture": "api.capturing",
    "check": "api.checking",
    "engine_problems": "consumers.serving.models.campaign",
    "landscapes": "api.landscapes",
    "measure": "api.configs.measuring",
    "read_study": "api.replaying",
    "read_table": "api.table",
    "replay": "api.replaying",
    "sampler": "seams.sampler_options",
    "tune": "api.tuning",
    "verify": "api.verifying",
    "write_landscapes": "api.landscapes",
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
