"""Optuna says nothing within the block, and what it said before after it."""

from __future__ import annotations

import logging
import warnings

import optuna
import pytest

from gemmtune.engine.search.quiet_optuna import quiet_optuna


@pytest.fixture(params=[logging.DEBUG, logging.ERROR])
def level(request):
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(request.param)
    yield request.param
    optuna.logging.set_verbosity(before)


def test_warnings_of_experimental_features_and_messages_are_silent_within_the_block(level):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with quiet_optuna():
            warnings.warn("experimental", optuna.exceptions.ExperimentalWarning, stacklevel=1)
            assert optuna.logging.get_verbosity() == logging.WARNING
            with pytest.raises(UserWarning, match="of somebody else"):
                warnings.warn("of somebody else", UserWarning, stacklevel=1)
        with pytest.raises(optuna.exceptions.ExperimentalWarning):
            warnings.warn("experimental", optuna.exceptions.ExperimentalWarning, stacklevel=1)
    assert optuna.logging.get_verbosity() == level


def test_an_error_within_the_block_restores_the_level(level):
    with pytest.raises(KeyError), quiet_optuna():
        raise KeyError
    assert optuna.logging.get_verbosity() == level
