"""Turn measurements into the trials that samplers learn from."""

from __future__ import annotations

import math

from gemmtune.engine.records.errors import ContractError
from gemmtune.engine.records.measurement import Measurement, Status, Trial
from gemmtune.engine.seams.objective import Objective

__all__ = ["score_of", "trial_of"]


def trial_of(measurement: Measurement, objective: Objective) -> Trial:
    """Return the config with its status and scores.

    Raises:
        ContractError: the score is no finite number above 0.
    """
    score = score_of(measurement, objective)
    scores = () if score is None or not objective.parts else objective.scores(measurement)
    return Trial(measurement.config, measurement.status, score, scores)


def score_of(measurement: Measurement, objective: Objective) -> float | None:
    """Return the objective's score, to minimise; None for a measurement that is not ok.

    Raises:
        ContractError: the score is no finite number above 0.
    """
    if measurement.status is not Status.OK:
        return None
    score = objective.score(measurement)
    if not 0 < score < math.inf:
        name = type(objective).__qualname__
        raise ContractError(f"objective {name} gave {measurement.config} the score {score}, not a number above 0")
    return score
