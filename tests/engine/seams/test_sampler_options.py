"""Samplers with options: in Python, as texts and at the command line."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import gemmtune as gt
from gemmtune.engine.seams.plugin_class import class_named
from gemmtune.engine.search.samplers.evolution import EvolutionSampler


def test_options_reach_the_constructor_and_the_class_travels():
    made = gt.sampler("evolution", initial=12, children=16)
    assert made.__name__ == "evolution(initial=12,children=16)"
    there = pickle.loads(pickle.dumps(made))
    for kind in (made, there):
        sampler = kind(gt.testing.example_search())
        assert (sampler._children, sampler._draws_left, kind.__name__) == (16, 10, made.__name__)
    assert gt.sampler("evolution") is EvolutionSampler


def test_a_class_with_options_takes_further_ones():
    first = gt.sampler("evolution", children=16, initial=2)
    assert gt.sampler(first, population=8, initial=3).__name__ == "evolution(children=16,initial=3,population=8)"
    with pytest.raises(gt.UsageError, match="sampler evolution has no option 'childs'; did you mean children"):
        gt.sampler(first, childs=3)


@pytest.mark.parametrize(
    ("named", "options", "bound"),
    [
        ("evolution", {"children": -1}, "an integer from 1 on"),
        ("evolution", {"initial": -1}, "an integer from 0 on"),
        ("evolution", {"mean_mutations": -0.5}, "a number from 0 on"),
        ("transfer", {"skeptical_every": 0}, "an integer from 1 on"),
        ("transfer", {"initial_seeds": -1}, "an integer from 0 on"),
        ("auto", {"most_for_transfer": -1}, "an integer from 0 on"),
    ],
)
def test_a_number_out_of_bounds_is_refused(named, options, bound):
    [(name, value)] = options.items()
    with pytest.raises(gt.UsageError, match=f"{name}={value} is not {bound}"):
        gt.sampler(named, **options)(gt.testing.example_search())


class InSteps(gt.sampler("evolution", children=16)):
    """A class that is derived from one with options."""


def test_a_class_derived_from_one_with_options_travels_as_itself():
    assert pickle.loads(pickle.dumps(InSteps)) is InSteps


def test_a_text_spells_the_options(tmp_path):
    found = class_named(gt.Sampler, "evolution(initial=12, children=16)", Path())
    assert found.__name__ == "evolution(initial=12,children=16)"
    (tmp_path / "mine_with_options.py").write_text(
        "import gemmtune as gt\nfrom gemmtune.engine.search.samplers.random import RandomSampler\n"
        "class Mine(RandomSampler):\n    def __init__(self, search, *, mode: str = 'a'):\n"
        "        super().__init__(search)\n        self.mode = mode\n"
    )
    mine = class_named(gt.Sampler, "./mine_with_options.py:Mine(mode=b)", tmp_path)
    assert mine(gt.testing.example_search()).mode == "b"


def test_options_that_there_are_not_are_refused():
    with pytest.raises(gt.UsageError, match=r"sampler evolution has no option 'childs'; did you mean children\?"):
        gt.sampler("evolution", childs=3)
    with pytest.raises(gt.UsageError, match="sampler random has no option 'n'; it has none"):
        gt.sampler("random", n=3)
    with pytest.raises(gt.UsageError, match="children='many' is not of type int"):
        gt.sampler("evolution", children="many")
    with pytest.raises(gt.UsageError, match="'children' is no option of a sampler: write name=value"):
        class_named(gt.Sampler, "evolution(children)", Path())
