"""Optuna without its log messages and warnings."""

from collections.abc import Iterator
from contextlib import contextmanager
from warnings import catch_warnings, simplefilter

import optuna

__all__ = ["quiet_optuna"]


@contextmanager
def quiet_optuna(*ignored: type[Warning]) -> Iterator[None]:
    """Silence Optuna's messages, its warnings of experimental features and the `ignored` ones; restore them after."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with catch_warnings():
            simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            for category in ignored:
                simplefilter("ignore", category)
            yield
    finally:
        optuna.logging.set_verbosity(level)
