"""Read a config that a person wrote, and refuse one that the space does not have."""

import json
from collections.abc import Iterator, Mapping

from gemmtune.engine.records.config import Config, Param, Value
from gemmtune.engine.records.errors import UsageError, did_you_mean
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.space import Space

_WAYS_OUT = 3  # changes of one value that a refusal names


def written_config(space: Space, task: Task, text: str) -> Config:
    """Return the config of `BLOCK_M=64 num_warps=4`, split by spaces or commas, or of a JSON object as in table.json.

    Raises:
        UsageError: the text is malformed, has other params or values than the space, or the space refuses the config.
    """
    given, params = _values(text), space.params(task)
    known = {param.name: param for param in params}
    for name in given:
        if name not in known:
            names = ", ".join(known) or "none"
            raise UsageError(f"config {text!r}: no param {name!r}; {did_you_mean(name, known)}known: {names}")
    missing = [f"{name}={'|'.join(map(_spelled, known[name].values))}" for name in known if name not in given]
    if missing:
        raise UsageError(f"config {text!r} lacks {', '.join(missing)}: add a value of each")
    config = Config({name: _value(task, known[name], value) for name, value in given.items()})
    verdict = space.check(task, config)
    if not verdict:
        near = " or ".join(_feasible_changes(space, task, config, params))
        way_out = f"; {near} passes" if near else ""
        raise UsageError(f"config {text!r} is none of {task.problem.name}: {verdict.reason}{way_out}")
    return config


def _values(text: str) -> Mapping[str, object]:
    """Return the values of a text by name: those of JSON as they are, others as they are written."""
    if text.lstrip().startswith("{"):
        try:
            found = json.loads(text)
        except ValueError as error:
            raise UsageError(f"config {text!r} is not JSON: {error}") from None
        return dict(found)
    pairs = [part.partition("=") for part in text.replace(",", " ").split()]
    for name, equals, value in pairs:
        if not (name and equals and value):
            raise UsageError(f"config {text!r}: {name + equals + value!r} is not NAME=VALUE")
    names = [name for name, _, _ in pairs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"config {text!r} has {twice} twice")
    return {name: value for name, _, value in pairs}


def _value(task: Task, param: Param, given: object) -> Value:
    for value in param.values:
        if given == _spelled(value) or (type(given) is type(value) and given == value):
            return value
    known = ", ".join(map(_spelled, param.values))
    raise UsageError(f"{param.name}={given} is not a value of {task.space}; take one of {known}")


def _spelled(value: Value) -> str:
    return str(value)


def _feasible_changes(space: Space, task: Task, config: Config, params: tuple[Param, ...]) -> Iterator[str]:
    """Yield a few changes of one value with which the space takes the config, the smallest changes first."""
    changes = [
        (abs(place - param.values.index(config[param.name])), param.name, value)
        for param in params
        for place, value in enumerate(param.values)
        if value != config[param.name]
    ]
    found = 0
    for _, name, value in sorted(changes, key=lambda change: change[0]):
        if found < _WAYS_OUT and space.check(task, Config({**config, name: value})):
            found += 1
            yield f"{name}={_spelled(value)}"
