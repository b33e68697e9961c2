"""Searches in processes of their own ask for what they would ask for in the driver."""

from __future__ import annotations

import multiprocessing
import pickle
from contextlib import closing
from functools import partial

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Status, Trial
from gemmtune.engine.records.task import Task
from gemmtune.engine.scheduling.elsewhere import search_processes
from gemmtune.engine.scheduling.elsewhere.search_processes import SearchProcesses
from gemmtune.engine.scheduling.task_search import TaskSearch
from gemmtune.engine.seams import registry
from gemmtune.engine.search.enumeration import feasible_configs

TASK = Task(Problem.parse("16x4096x4096:bf16:nt"), catalogue.device("H200"), "triton_mm")


def fresh(begin=None, sampler="random"):
    space = registry.space(TASK.space)
    made = TaskSearch(
        TASK, space, partial(feasible_configs, space, TASK), registry.sampler(sampler), budget=40, seed=3, batch=8
    )
    made.begin_elsewhere = begin
    return made


def outcome(config):
    number = int(config.digest[:4], 16)
    return Trial(config, Status.OK, 1e4 + number) if number % 5 else Trial(config, Status.RUN_FAILED, None)


def batches(search, *, before=lambda number: None):
    """Run a search to its end; return its batches."""
    found = []
    while True:
        before(len(found))
        batch = search.next_batch()
        if not batch:
            return found
        found.append(batch)
        search.tell(list(map(outcome, batch)))


def test_searches_elsewhere_ask_for_what_they_ask_here_also_after_their_process_died():
    killed = []

    def kill(number):
        for child in multiprocessing.active_children() if number == 3 else ():
            child.kill()
            killed.append(child.pid)

    expected, notes = batches(fresh()), []
    with closing(SearchProcesses(1, notes.append)) as processes:
        there = fresh(processes.begin)
        assert batches(there) == expected
        assert there.is_elsewhere
        assert there.done
        again = fresh(processes.begin)
        assert batches(again, before=kill) == expected
        assert not again.is_elsewhere
        assert (again.trials, again.best, again.feasible) == (there.trials, there.best, there.feasible)
        assert batches(fresh(processes.begin)) == expected  # no process is left
    assert len(killed) == len(notes) == 1
    assert "ended (signal SIGKILL)" in notes[0]
    assert not multiprocessing.active_children()


def unreadable():
    raise AttributeError("its module is another one there")


class Unreadable:
    def __call__(self):
        return feasible_configs(registry.space(TASK.space), TASK)

    def __reduce__(self):
        return unreadable, ()


def test_a_search_that_fails_elsewhere_goes_on_here_and_leaves_the_others_there():
    notes = []
    with closing(SearchProcesses(1, notes.append)) as processes:
        other, failing = fresh(processes.begin), fresh(processes.begin)
        failing.terms = failing.terms | {"configs": Unreadable()}
        first = other.next_batch()
        expected = batches(fresh())
        assert batches(failing) == expected
        assert not failing.is_elsewhere
        other.tell(list(map(outcome, first)))
        assert [first, *batches(other)] == expected
        assert other.is_elsewhere
    assert not notes


def test_a_process_of_searches_answers_none_for_a_search_or_a_history_that_it_does_not_know():
    process = search_processes._Searches()
    assert process(search_processes._Turn(7)) is None
    assert process(search_processes._Turn(8, terms=pickle.dumps(dict(fresh().terms)), history=3)) is None
