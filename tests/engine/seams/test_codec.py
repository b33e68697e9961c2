"""Records as JSON: every kind of field reads back, nothing is coerced, and what is wrong is named by its path."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum

import pytest

from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams.codec import Malformed, decoded, encoded


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Part:
    colour: Colour
    sizes: tuple[tuple[int, float], ...] = ()
    note: str = field(default="", metadata={"sparse": True})

    @property
    def fault(self) -> str:
        return "it clashes" if self.note == "clash" else ""


@dataclass(frozen=True, slots=True)
class Whole:
    name: str
    is_new: bool
    number: int = field(metadata={"least": 1})
    share: float | None = field(metadata={"least": 0, "most": 1})
    ends: tuple[float, float] = field(metadata={"least": -math.inf, "most": math.inf})
    parts: tuple[Part, ...]
    rates: Mapping[str, float] = field(metadata={"above": 0})
    problem: Workload
    config: Config
    toolchain: Toolchain
    samples_ns: tuple[float, ...] = ()
    private: int = field(default=5, compare=False, metadata={"json": False})


WHOLE = Whole(
    "µ\n",
    True,
    3,
    0.5,
    (-math.inf, 1.0),
    (Part(Colour.RED, ((16, 0.25),)), Part(Colour.BLUE, (), "x")),
    {"a b": 2.0},
    Problem(16, 64, 32),
    Config({"x": 1, "y": True, "z": "a", "w": 0.5}),
    Toolchain((("torch", "2.13.0"),)),
    (1.0, 2.0),
)


def changed(*path, value):
    """Return the JSON of WHOLE with another value at a path; without the field for `...`."""
    record = json.loads(json.dumps(encoded(WHOLE)))
    place = record
    for step in path[:-1]:
        place = place[step]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return record


@pytest.mark.parametrize("further", [False, True])
def test_every_kind_of_field_is_read_back(further):
    assert decoded(Whole, json.loads(json.dumps(encoded(WHOLE))), further=further) == WHOLE
    assert decoded(Whole, changed("share", value=None), further=further) == replace(WHOLE, share=None)


def test_the_names_in_json_are_the_names_in_code_without_those_that_are_left_out():
    record = encoded(WHOLE)
    assert [*record, "private"] == [each.name for each in fields(Whole)]
    assert (record["toolchain"], record["parts"][0]) == (
        [["torch", "2.13.0"]],
        {"colour": "red", "sizes": [[16, 0.25]]},
    )
    assert record["parts"][1]["note"] == "x"


def test_a_whole_number_in_a_field_of_floats_is_written_and_read_as_a_float():
    text = json.dumps(encoded(replace(WHOLE, share=1, samples_ns=(3, 4.5))))
    assert '"share": 1.0' in text
    assert '"samples_ns": [3.0, 4.5]' in text
    found = decoded(Whole, changed("samples_ns", value=[3, 4.5]))
    assert [type(each) for each in found.samples_ns] == [float, float]


def test_samples_whose_sum_is_too_large_are_read():
    assert decoded(tuple[float, ...], [1.7e308, 1.7e308]) == (1.7e308, 1.7e308)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("name",), 3, "name=3 is not text"),
        (("is_new",), 1, "is_new=1 is not true or false"),
        (("number",), True, "number=True is not an integer from 1 on"),
        (("number",), 1.0, "number=1.0 is not an integer from 1 on"),
        (("number",), 0, "number=0 is not an integer from 1 on"),
        (("number",), 2**63, f"number={2**63} is not an integer from 1 on and at most {2**63 - 1}"),
        (("share",), "0.5", "share='0.5' is not a number from 0 on and at most 1"),
        (("share",), 1.5, "share=1.5 is not a number from 0 on and at most 1"),
        (("share",), math.nan, "share=nan is not a number from 0 on and at most 1"),
        (("samples_ns",), [1.0, math.inf], "samples_ns[1]=inf is not a number and at most"),
        (("samples_ns",), [1.0, True], "samples_ns[1]=True is not a number"),
        (("samples_ns",), {}, "samples_ns={} is not a list"),
        (("ends",), [1.0], "ends=[1.0] is not a list of 2 values"),
        (("ends",), [1.0, math.nan], "ends[1]=nan is not a number"),
        (("rates", "a b"), 0, "rates['a b']=0 is not a number above 0"),
        (("rates",), [], "rates=[] is not an object"),
        (("parts", 1, "colour"), "green", "parts[1].colour='green' is not one of red, blue"),
        (("parts", 1, "colour"), [], "parts[1].colour=[] is not one of red, blue"),
        (("parts", 0, "sizes", 0, 0), "16", "parts[0].sizes[0][0]='16' is not an integer"),
        (("parts", 0, "note"), "clash", "parts[0]: it clashes"),
        (("parts", 0), None, "parts[0]=None is not an object"),
        (("parts", 0, "colour"), ..., "parts[0] lacks the field 'colour'"),
        (("parts", 0, "hue"), 1, "parts[0] has the unknown field 'hue'; known: colour, note, sizes"),
        (("private",), 5, "it has the unknown field 'private'; known: "),
        (("name",), ..., "it lacks the field 'name'"),
        (("config", "x"), [1], "config.x=[1] is not a number, a truth value or text"),
        (("toolchain", 0, 1), 2, "toolchain[0][1]=2 is not text"),
        (("problem", "m"), 16, "problem.m=16 is not text"),
        (("problem", "m"), "0", "problem: m=0 is not an integer from 1"),
        (("problem", "kind"), "os.system", "problem: "),
        (("problem", "size"), "1", "problem: "),
    ],
)
def test_what_is_wrong_is_named_by_its_path_its_value_and_what_is_expected(path, value, said):
    with pytest.raises(Malformed) as caught:
        decoded(Whole, changed(*path, value=value))
    assert str(caught.value).startswith(said)


def test_a_fault_of_a_records_own_constructor_is_named():
    device = encoded(Device("a", "b", "sm_90a", *range(1, 11)))
    with pytest.raises(Malformed, match=r"^arch='x' is no architecture"):
        decoded(Device, device | {"arch": "x"})


def test_fields_that_are_missing_or_unknown_are_taken_as_the_reader_asks():
    missing, more = changed("samples_ns", value=...), changed("parts", 0, "hue", value=1)
    assert decoded(Whole, missing) == decoded(Whole, missing, further=True) == replace(WHOLE, samples_ns=())
    assert decoded(Whole, more, further=True) == WHOLE
    assert decoded(Whole, changed("problem", "bias", value=...)) == WHOLE


def test_a_record_that_is_decoded_already_stays():
    part = Part(Colour.RED)
    found = decoded(Whole, changed("parts", value=[part]) | {"problem": WHOLE.problem, "config": WHOLE.config})
    assert found.parts[0] is part
    assert found.problem is WHOLE.problem


def test_a_name_in_json_is_never_imported():
    code = (
        "import sys; from gemmtune.engine.records.workload import Workload\n"
        "from gemmtune.engine.seams.codec import Malformed, decoded\n"
        "try:\n    decoded(Workload, {'kind': 'antigravity:x', 'm': '1'})\n"
        "except Malformed as error:\n    print('antigravity' in sys.modules, error)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.startswith("False ")
    assert "antigravity:x" in said
