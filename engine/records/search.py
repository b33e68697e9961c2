"""Search of one task, as a sampler receives it, and what a model expects of its configs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.measurement import Trial

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FeatureFunction = Callable[[Config], Mapping[str, float]]
"""Function from a config of one task to its features by name; the names are equal for every config of a space."""


def no_features(config: Config) -> Mapping[str, float]:
    """Return no features, for a task of which only the parameters are known."""
    return {}


@dataclass(frozen=True, slots=True)
class Guess:
    """Expectation of a task's configs before one was measured, from measurements of other kernels."""

    slowness: "NDArray[np.float64]"
    """Logarithm of each config's time over the best time, up to a constant, shape (configs,)."""
    shapes: "NDArray[np.float64]"
    """Numbers of each config by which it resembles others, beside its parameters, shape (configs, numbers)."""


def no_guess(configs: Sequence[Config]) -> Guess | None:
    """Return nothing, for a task of whose configs nothing is expected."""
    return None


@dataclass(frozen=True, slots=True)
class SourceTask:
    """Measurements of another task of the same space, to learn from."""

    trials: tuple[Trial, ...]
    """Comparable outcomes of one task, protocol and toolchain, failures included."""
    features: FeatureFunction = no_features
    """Features of that task's configs."""


@dataclass(frozen=True, slots=True)
class Search:
    """Feasible set of one task with budget, seed and history.

    Example:
        >>> import gemmtune as gt
        >>> search = gt.testing.example_search(budget=8)
        >>> search.budget, len(search.feasible)
        (8, 28)
    """

    params: tuple[Param, ...]
    """Parameters that span the space."""
    feasible: tuple[Config, ...]
    """Configs that passed the space's check, each once, in the order of enumeration; with `may_ask`, some of them."""
    seeds: tuple[Config, ...]
    """Feasible configs known as good starting points, best guess first; may be empty."""
    budget: int
    """Number of evaluations the search may spend."""
    seed: int
    """Seed of the search's own random choices."""
    objectives: int = 1
    """Number of scores per trial, above 1 for an objective of several parts."""
    features: FeatureFunction = no_features
    """Features of this task's configs."""
    campaign_seed: int = 0
    """Seed shared by the searches of a campaign, for models that they fit to the same history."""
    history: tuple[SourceTask, ...] = ()
    """Measurements of other tasks, the oldest first; empty for a sampler that does not learn from them."""
    first: tuple[Config, ...] = ()
    """Seeds to evaluate before anything else, at most the budget; empty where the sampler chooses."""
    guess: Callable[[Sequence[Config]], Guess | None] = no_guess
    """Function from configs of the task to what is expected of them; None where nothing is."""
    may_ask: Callable[[Config], bool] | None = None
    """Whether a config may be asked for though `feasible` lacks it; None where that holds all.

    A space too large to enumerate has such a check, and its `feasible` are drawn at random.
    """


@dataclass(frozen=True, slots=True)
class Prior:
    """Estimated times of one task's configs; they rank only against times of one model, problem and device.

    Example:
        >>> import gemmtune as gt
        >>> gt.Prior({gt.Config({"BLOCK_M": 64}): 9.5e3}, model="roofline 1").model
        'roofline 1'
    """

    times_ns: Mapping[Config, float] = field(default_factory=dict)
    """Estimated time of one launch in ns, above 0, by config; a config that the model does not cover is missing."""
    model: str = ""
    """Model with its version, `nvidia-matmul-heuristics 0.1.0.27`; empty without a model."""
    reason: str = ""
    """Reason for people why there are no times; empty if there are."""
