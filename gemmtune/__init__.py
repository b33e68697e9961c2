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

_NAMES = {
    "api.benching": "bench",
    "api.capturing": "capture",
    "api.checking": "check",
    "api.configs.measuring": "measure",
    "api.landscapes": "landscapes write_landscapes",
    "api.replaying": "Study read_study replay",
    "api.table": "Table read_table",
    "api.tune_result": "TuneResult",
    "api.tuning": "tune",
    "api.verifying": "verify",
    "consumers.serving.models.campaign": "engine_problems",
    "records.artifact": "Artifact Toolchain",
    "records.config": "Config Param",
    "records.errors": (
        "ContractError DeviceError GemmtuneError LandscapeError ProblemError StoreError TableError ToolchainMissing "
        "UnknownPlugin UsageError"
    ),
    "records.gemm.problem": "Problem",
    "records.landscape": "Landscape Point",
    "records.measurement": "Measurement Status Trial",
    "records.search": "Prior Search",
    "records.task": "Task",
    "records.verdict": "Verdict",
    "scheduling.callbacks": "Callback",
    "seams.exporter": "Exporter",
    "seams.objective": "Objective",
    "seams.pruner": "Candidate Pruner",
    "seams.sampler": "Sampler",
    "seams.sampler_options": "sampler",
    "seams.space": "BuildError Space",
    "store.database": "Database",
    "studies.own_evaluation": "AskTell",
}
"""Public names by the module of `gemmtune.engine` that has them."""
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


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
