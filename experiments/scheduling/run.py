"""Check the bound on a task's regret, and what the order of tasks gains. It needs no GPU.

python experiments/scheduling/run.py
"""

from __future__ import annotations

import math
import random
from statistics import mean

from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.replayed_backend import read_all, replayed_backend
from gemmtune.engine.records.measurement import Status, Trial
from gemmtune.engine.scheduling.stopping import regret_bound
from gemmtune.engine.store.landscapes.landscape_file import embedded

BUDGET, BATCH = 160, 8
RUNS = [("evolution", seed) for seed in range(12)] + [("tpe", seed) for seed in range(4)]


def scores_of(search, executor):
    """Return the scores of a search in the order of evaluation, None for a failure."""
    scores = []
    while batch := search.next_batch():
        for config in batch:
            executor.submit(search.task, config)
        found = {m.config: m for m in executor.collect(0.0)}
        trials = [found[config] for config in batch]
        told = [Trial(m.config, m.status, m.estimate.time_ns if m.status is Status.OK else None) for m in trials]
        search.tell(told)
        scores += [trial.score for trial in told]
    return scores


def campaigns():
    """Yield the scores, feasible count and optimum of the ten problems, per sampler and seed."""
    landscapes = read_all(embedded())
    for sampler, seed in RUNS:
        plan = Plan(sampler=sampler, budget=BUDGET, seed=seed)
        backend = replayed_backend(plan, landscapes)
        searched = [search for search in backend.searches if search.task.space == "triton_mm"]
        yield [
            (scores_of(search, backend.executor), search.feasible, backend.optimum(search.task)) for search in searched
        ]


def ok(scores):
    return [score for score in scores if score is not None]


def regret(scores, optimum):
    return min(ok(scores)) / optimum - 1


def bounds(found):
    looks = [
        (regret(scores[:n], optimum), regret_bound(ok(scores[:n]), n, feasible))
        for scores, feasible, optimum in found
        for n in range(2 * BATCH, BUDGET + 1, BATCH)
    ]
    print(f"regret under its bound: {mean(real <= bound for real, bound in looks):.1%} of {len(looks)} looks")
    for target in (0.1, 0.05, 0.02, 0.01):
        ends = []
        for scores, feasible, optimum in found:
            under = (n for n in range(BATCH, BUDGET, BATCH) if regret_bound(ok(scores[:n]), n, feasible) <= target)
            n = next(under, BUDGET)
            ends.append((n, regret(scores[:n], optimum)))
        over = mean(real > target for _, real in ends)
        print(
            f"--regret {target}: {mean(n for n, _ in ends):.0f} of {BUDGET} evaluations, "
            f"mean regret {mean(real for _, real in ends):.2%}, above the target in {over:.0%} of the tasks"
        )


def order(campaign, weights, total, pick):
    """Return the evaluations per task when `total` are spent; `pick` chooses the next task among the open ones."""
    spent = [BATCH] * len(campaign)
    while sum(spent) < total:
        spent[pick(campaign, weights, spent, [i for i, n in enumerate(spent) if n < BUDGET])] += BATCH
    return spent


def expected_gain(scores, evaluations, batch):
    """Return the expected improvement of a batch over the best score, from an exponential tail of the five best."""
    best = sorted(scores)[:6]
    if len(best) < 6:
        return math.inf if evaluations < 32 else 0.0
    scale = sum(math.log(best[-1] / score) for score in best[:-1]) / 5
    return best[0] * -math.expm1(-scale * math.log1p(batch / evaluations))


def by_plan(campaign, weights, spent, open_):
    return open_[0]


def in_turns(campaign, weights, spent, open_):
    return min(open_, key=lambda i: spent[i])


def by_gain(campaign, weights, spent, open_):
    return max(open_, key=lambda i: weights[i] * expected_gain(ok(campaign[i][0][: spent[i]]), spent[i], BATCH))


def by_weight(campaign, weights, spent, open_):
    return min(open_, key=lambda i: spent[i] / weights[i])


def by_root_of_weight(campaign, weights, spent, open_):
    return min(open_, key=lambda i: spent[i] / math.sqrt(weights[i]))


def total_of(weights, times):
    return sum(weight * time for weight, time in zip(weights, times, strict=True))


ORDERS = {"plan": by_plan, "turns": in_turns, "gain": by_gain, "weight": by_weight, "root of weight": by_root_of_weight}


def orders(found, named, weigh):
    weights = [weigh() for _ in found]
    for total in (240, 320, 480, 800):
        lines = []
        for name, pick in ORDERS.items():
            lost = []
            for campaign, weight in zip(found, weights, strict=True):
                spent = order(campaign, weight, total, pick)
                best = [min(ok(scores[:n])) for (scores, _, _), n in zip(campaign, spent, strict=True)]
                least = [optimum for _, _, optimum in campaign]
                lost.append(total_of(weight, best) / total_of(weight, least) - 1)
            lines.append(f"{name} {mean(lost):.2%}")
        print(f"{named}, {total} evaluations over ten problems, time above the optimum: {', '.join(lines)}")


if __name__ == "__main__":
    searched = list(campaigns())
    tasks = [task for campaign in searched for task in campaign]
    bounds(tasks)
    chance = random.Random(1)
    orders(searched, "equal weights", lambda: [1.0] * 10)
    orders(searched, "weights far apart", lambda: [math.exp(chance.gauss(0, 1.5)) for _ in range(10)])
