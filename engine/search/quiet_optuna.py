"""Optuna, which is optional, without its log messages and warnings."""

from collections.abc import Iterator
from contextlib import contextmanager
from warnings import catch_warnings, simplefilter

from gemmtune.engine.toolchain.installed import require_extra

require_extra("study", "a sampler of Optuna", "optuna", "cmaes")
import optuna  # noqa: E402 -- first the line that says how to install it

__all__ = ["optuna", "quiet_optuna"]


@contextmanager
def quiet_optuna() -> Iterator[None]:
    """Silence Optuna's messages and its warnings of experimental features; restore them after."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with catch_warnings():
            simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(level)
