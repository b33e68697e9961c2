"""Write docs/schemas: JSON schemas of campaign files, tables and events, from the code that reads and writes them."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from itertools import pairwise
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from gemmtune.engine.campaign.plan import OPTIONS
from gemmtune.engine.campaign.plan_keys import PROBLEM_KEYS
from gemmtune.engine.io.options import Option, Value, options_of
from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.records.table import Table
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.tables.table_file import SCHEMA

FOLDER = Path(__file__).parents[1] / "schemas"
DRAFT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
TRUTH: Schema = {"type": "boolean"}
SCALAR: Schema = {"type": ["string", "number", "boolean"]}
CONFIG: Schema = {"type": "object", "additionalProperties": SCALAR}
BOUNDS = {"least": "minimum", "above": "exclusiveMinimum", "most": "maximum"}
KINDS: dict[str, Schema] = {"integer": WHOLE, "text": TEXT, "number": NUMBER, "true or false": TRUTH}
KINDS |= {
    "list of integers": {"type": "array", "items": WHOLE},
    "integer or list of integers": {"anyOf": [WHOLE, {"type": "array", "items": WHOLE}]},
}
"""Schemas of the kinds of keys in a `[[problem]]`, as docs/campaign-keys.md words them."""


def _or_none(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _some(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def _object(properties: Mapping[str, Schema], required: Iterable[str]) -> Schema:
    known = {"properties": dict(properties), "required": list(required)}
    return {"type": "object", **known, "additionalProperties": False}


EVENTS: dict[str, list[Schema]] = {
    "began": [{"tasks": {"type": "object", "additionalProperties": WHOLE}}],
    "measured": [
        {
            "task": TEXT,
            "config": CONFIG,
            "status": {"enum": [status.value for status in Status]},
            "score": _or_none(NUMBER),
            "reason": TEXT,
            "worker": TEXT,
            "build_seconds": _or_none(NUMBER),
            "known": TRUTH,
        }
    ],
    "ended": [{"task": TEXT, "why": TEXT, "evaluations": WHOLE, "score": _or_none(NUMBER), "config": _or_none(CONFIG)}],
    "final": [
        {
            "problem": TEXT,
            "leader": _object({"space": TEXT, "config": CONFIG}, ("space", "config")),
            "time_ns": NUMBER,
            "regret_bound": _or_none(NUMBER),
        },
        {"problem": TEXT, "reason": TEXT},
    ],
    "load": [
        {
            "queued": WHOLE,
            "building": WHOLE,
            "timing": WHOLE,
            "workers": {"type": "object", "additionalProperties": TRUTH},
            "seconds_left": _or_none(NUMBER),
        }
    ],
    "notice": [{"text": TEXT}],
    "over": [{"reason": TEXT}],
}
"""Fields of each event's forms, beside `event` and `at`; docs/tuning.md says when each is written."""


def events() -> Schema:
    """Return the schema of one line of `--events`."""
    stamp: Schema = {"type": "string", "format": "date-time"}
    forms = [
        _object({"event": {"const": name}, "at": stamp, **form}, ("event", "at", *form))
        for name, known in EVENTS.items()
        for form in known
    ]
    return {"$schema": DRAFT, "title": "Event of a gemmtune campaign", "oneOf": forms}


def campaign() -> Schema:
    """Return the schema of a campaign file, as TOML is read."""
    keys = {name: {**_option(option), "description": option.sentence} for name, option in OPTIONS.items()}
    keys |= {"problems": _several(TEXT), "problem": _some(_problem())}
    return {"$schema": DRAFT, "title": "Campaign of gemmtune", **_object(keys, ()), "minProperties": 1}


def _several(schema: Schema) -> Schema:
    return {"anyOf": [schema, _some(schema)]}


def _option(option: Option) -> Schema:
    bounds = {key: getattr(option, name) for name, key in (("least", "minimum"), ("above", "exclusiveMinimum"))}
    bounds = {key: bound for key, bound in bounds.items() if bound > -float("inf")}
    match option.value:
        case Value.INTEGER:
            return {**WHOLE, **bounds}
        case Value.FRACTION | Value.SECONDS:
            return {**NUMBER, **bounds}
        case Value.LIMITS:
            limits = {name: _option(each) for name, each in options_of(option.of).items()}
            return {"anyOf": [TRUTH, _object(limits, ())]}
        case Value.FLAG:
            return TRUTH
        case Value.NAME | Value.SAMPLER:
            return TEXT
    return _several(TEXT)


def _problem() -> Schema:
    """Return the schema of a `[[problem]]`: of a GEMM by its keys, of another kind by the kind's own."""
    keys: dict[str, Schema] = {"kind": {"const": "gemm"}}
    for key in PROBLEM_KEYS:
        word, _, bound = key.kind.partition(" above ")
        found = KINDS[word]
        keys[key.name] = {**found, **({"exclusiveMinimum": int(bound)} if bound else {}), "description": key.meaning}
    gemm = _object(keys, (key.name for key in PROBLEM_KEYS if key.without == "required"))
    other = {"type": "object", "additionalProperties": {"anyOf": [SCALAR, _some(WHOLE)]}}
    named = {"properties": {"kind": {"not": {"const": "gemm"}}}, "required": ["kind"]}
    return {"if": named, "then": other, "else": gemm}


def table() -> Schema:
    """Return the schema of a table's file."""
    known: dict[str, Schema] = {}
    whole = _record(Table, known)
    for row in ("Row", "RangeRow"):
        known[row]["properties"] |= {"name": TEXT, "weight": {**NUMBER, "exclusiveMinimum": 0}}
        known[row]["required"] += ["name", "weight"]
    whole["properties"] |= {"schema": {"const": SCHEMA}, "gemmtune": TEXT, "sha256": {"pattern": "^[0-9a-f]{64}$"}}
    whole["required"] += ["schema", "gemmtune", "sha256"]
    return {"$schema": DRAFT, "title": "Table of gemmtune", **whole, "$defs": known}


def _record(kind: type, known: dict[str, Schema]) -> Schema:
    """Return the schema of a record's fields as `seams.codec` writes them."""
    hints, said = get_type_hints(kind), _sentences(kind)
    written = [field for field in fields(kind) if field.metadata.get("json", True)]
    properties = {}
    for field in written:
        bounds = {BOUNDS[name]: bound for name, bound in field.metadata.items() if name in BOUNDS}
        properties[field.name] = {**_schema(hints[field.name], known, bounds), "description": said[field.name]}
    required = [each.name for each in written if each.default is MISSING and each.default_factory is MISSING]
    return _object(properties, required)


def _schema(kind: Any, known: dict[str, Schema], bounds: Schema) -> Schema:  # noqa: ANN401 (a type)
    parts, origin = get_args(kind), get_origin(kind)
    if NoneType in parts:
        (part,) = (each for each in parts if each is not NoneType)
        return _or_none(_schema(part, known, bounds))
    if origin is Mapping:
        return {"type": "object", "additionalProperties": _schema(parts[1], known, bounds)}
    if origin is tuple:
        inner = [_schema(part, known, bounds) for part in parts if part is not ...]
        return _some(inner[0]) if ... in parts else {"type": "array", "prefixItems": inner, "items": False}
    if issubclass(kind, Workload):
        return {"type": "object", "additionalProperties": TEXT}
    if issubclass(kind, Enum):
        return {"enum": [member.value for member in kind]}
    plain = {str: TEXT, bool: TRUTH, int: WHOLE, float: NUMBER, Config: CONFIG, Toolchain: _some(_some(TEXT))}
    if kind in plain:
        return {**plain[kind], **bounds}
    assert is_dataclass(kind), kind
    if kind.__name__ not in known:
        known[kind.__name__] = _record(kind, known)
    return {"$ref": f"#/$defs/{kind.__name__}"}


def _sentences(kind: type) -> dict[str, str]:
    """Return the text below each field of a record."""
    (body,) = (each.body for each in ast.parse(inspect.getsource(kind)).body if isinstance(each, ast.ClassDef))
    return {
        field.target.id: " ".join(below.value.value.split())
        for field, below in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str)
    }


def files() -> dict[str, str]:
    """Return the text of each schema by the name of its file."""
    made = {"campaign": campaign(), "table": table(), "events": events()}
    return {f"{name}.schema.json": json.dumps(schema, indent=1) + "\n" for name, schema in made.items()}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in files().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
