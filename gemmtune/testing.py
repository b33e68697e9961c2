"""Conformance checks for plug-ins: each function raises ContractError at the first broken promise.

Example:
    >>> import gemmtune as gt
    >>> class InOrder(gt.Sampler):
    ...     def __init__(self, search):
    ...         super().__init__(search)
    ...         self.left = list(search.feasible)
    ...     def ask(self, count):
    ...         batch, self.left = self.left[:count], self.left[count:]
    ...         return batch
    ...     def tell(self, trials):
    ...         pass
    >>> from gemmtune.testing import check_sampler
    >>> check_sampler(InOrder)
"""

from gemmtune.engine.testing.exporter_conformance import check_exporter, example_table
from gemmtune.engine.testing.objective_conformance import check_objective, example_measurement
from gemmtune.engine.testing.pruner_conformance import check_pruner
from gemmtune.engine.testing.sampler_conformance import check_sampler, example_search
from gemmtune.engine.testing.space_conformance import check_build, check_space, example_tasks
from gemmtune.engine.testing.workload_conformance import check_operands, check_workload

__all__ = [
    "check_build",
    "check_exporter",
    "check_objective",
    "check_operands",
    "check_pruner",
    "check_sampler",
    "check_space",
    "check_workload",
    "example_measurement",
    "example_search",
    "example_table",
    "example_tasks",
]
