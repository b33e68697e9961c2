"""Configs of one's own, measured against the table's row and the vendor library."""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from gemmtune.engine.api.configs.report import comparison_report
from gemmtune.engine.api.landscapes import LandscapeSource, sources_of
from gemmtune.engine.api.output_folder import folder_of
from gemmtune.engine.api.plans import plan_with
from gemmtune.engine.api.table import Table, read_table
from gemmtune.engine.api.tune_result import TABLE_FILE
from gemmtune.engine.api.tuning import database_url
from gemmtune.engine.campaign.configs.compare import Comparison, Role, compare, require_recorded, rivals_of
from gemmtune.engine.campaign.configs.written import written_config
from gemmtune.engine.campaign.open_backend import open_backend
from gemmtune.engine.campaign.plan import Plan, ProblemLike
from gemmtune.engine.execution.hosts import LOCAL
from gemmtune.engine.io.arguments import checks_arguments
from gemmtune.engine.records.config import Config, Value
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.task import Task
from gemmtune.engine.report.layout import Report
from gemmtune.engine.scheduling.callbacks import Callback, notify
from gemmtune.engine.store.database import Database
from gemmtune.engine.tables.table_file import require_device

ConfigLike: TypeAlias = str | Mapping[str, Value]
"""A config, or its text: "BLOCK_M=64 BLOCK_N=128 ..."."""


@dataclass(frozen=True, slots=True)
class MeasureResult:
    """Configs of one's own beside the table's row, the best known kernel and the vendor library."""

    device: Device
    """GPU that the times are of."""
    comparisons: tuple[Comparison, ...]
    """Kernels of each problem with their numbers."""

    @property
    def holds(self) -> bool:
        """Whether every config that was named gave a right result and a time."""
        kernels = (kernel for each in self.comparisons for kernel in each.kernels)
        return all(kernel.contender is not None for kernel in kernels if kernel.role is Role.YOURS)

    @property
    def report(self) -> Report:
        """The report behind `summary`, as text and as JSON."""
        return comparison_report(self.device, self.comparisons)

    def summary(self, width: int | None = None) -> str:
        """Return a table per problem with a line per kernel, in at most `width` columns."""
        return self.report.to_text(width)


@checks_arguments
def measure(
    problems: ProblemLike | Iterable[ProblemLike],
    configs: ConfigLike | Sequence[ConfigLike],
    *,
    space: str | None = None,
    table: Table | str | os.PathLike[str] | None = None,
    backend: LandscapeSource | Sequence[LandscapeSource] = "auto",
    fleet: str = LOCAL,
    ray_address: str | None = None,
    builders: int | None = None,
    lock_clocks: int | None = None,
    callbacks: Sequence[Callback] = (),
    database: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
) -> MeasureResult:
    """Measure configs of one's own against the table's row and the vendor library.

    On a GPU the kernels of a problem meet in a final: rounds of one block of launches each, paired by round. Without
    one, recorded landscapes answer. Each measurement is stored, and made once per toolchain: a later campaign with the
    database knows it.

    Args:
        problems: problems or their texts; each is measured with every config.
        configs: configs, or texts such as "BLOCK_M=64 BLOCK_N=128 ...", each with a value per param of the space.
        space: space of the configs; by default the one that the problem is tuned in.
        table: table whose rows are measured, too, or its file; by default table.json in `out`, if it is there. The
            fastest kernel that the database knows of a problem is measured as well.
        backend: "auto" for a GPU if there is one, else the recorded landscapes; landscapes or their files.
        fleet: where to build and measure: local, ray, or ray://HOST:PORT.
        ray_address: cluster that fleet="ray" stands for; by default one that runs here, else a new one.
        builders: builder processes; by default one per core, less one.
        lock_clocks: SM clock to lock while the kernels are measured, MHz.
        callbacks: followers of the measurements.
        database: file or URL of the measurements; by default measurements.db in `out`, else in a new temporary folder.
        out: folder of a campaign, with its table and its database; by default none.

    Raises:
        UsageError: a config is malformed, is none of the space, or was not recorded; the message names the value, the
            bound and the way out.
        DeviceError: the table is of another GPU.
        LandscapeError: a problem was not recorded, and there is no GPU.
        ToolchainMissing: a package that builds or measures is not installed.

    Example:
        >>> import gemmtune as gt
        >>> mine = "BLOCK_M=16 BLOCK_N=64 BLOCK_K=128 GROUP_M=8 num_stages=5 num_warps=4"
        >>> found = gt.measure("16x4096x4096:bf16:nt", mine, backend=gt.landscapes("h200"))
        >>> [kernel.role.value for kernel in found.comparisons[0].kernels]
        ['yours', 'baseline']
    """
    named = [configs] if isinstance(configs, str | Mapping) else list(configs)
    plan = plan_with(Plan(), problems, space=space, budget=1)
    if not plan.problems:
        raise UsageError("no problem to measure: name one, for example 2048x4096x4096:bf16:nt")
    if not named:
        raise UsageError('no config to measure: name one, for example "BLOCK_M=64 BLOCK_N=128 ..."')
    folder = None if out is None else folder_of(out)
    if table is None and folder is not None and (folder / TABLE_FILE).exists():
        table = folder / TABLE_FILE
    rows = table if isinstance(table, Table) or table is None else read_table(table)
    plan = plan if rows is None else replace(plan, objective=rows.objective, margin=rows.margin)
    recorded, sku = sources_of(backend)
    if sku is not None:
        raise UsageError(f"backend {sku!r} is no landscape; leave it out to measure on the GPU that is here")
    told = partial(notify, callbacks)
    with ExitStack() as stack:
        made = _made(database, folder)
        store = stack.enter_context(Database.open(made, notify=told)) if made is not None else None
        rivals = rivals_of(rows, store, plan)
        spaces = (*plan.spaces, *(choice.space for its in rivals.values() for _, choice in its))
        plan = replace(plan, spaces=tuple(dict.fromkeys(spaces)))
        opened = open_backend(
            plan,
            landscapes=recorded,
            builders=builders,
            cluster=fleet,
            ray_address=ray_address,
            clock_mhz=lock_clocks,
            notify=told,
        )
        stack.enter_context(closing(opened))
        for note in opened.notes:
            told(note)
        if rows is not None:
            require_device(rows, opened.device)
        own = {}
        for problem in dict.fromkeys(search.task.problem for search in opened.searches):
            task = Task(problem, opened.device, space or problem.searched_space)
            of_space = plan.plugins.spaces[task.space]
            texts = (each if isinstance(each, str) else Config(each).json for each in named)
            own[task] = [written_config(of_space, task, text) for text in texts]
        require_recorded(opened, own)
        if store is None:
            store = stack.enter_context(Database.open(database_url(database, folder), notify=told))
        return MeasureResult(opened.device, compare(plan, opened, store, own, rivals, callbacks))


def _made(database: str | os.PathLike[str] | None, folder: Path | None) -> str | None:
    """Return the database that was made before, or is on a server; None where a refusal must leave none."""
    path = database if database is not None or folder is None else folder / "measurements.db"
    return os.fspath(path) if path is not None and ("://" in os.fspath(path) or os.path.lexists(path)) else None
