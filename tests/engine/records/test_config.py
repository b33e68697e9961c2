from __future__ import annotations

import os
import pickle
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmtune.engine.records.config import Config, Param, Value, spanned

VALUES = st.dictionaries(
    st.text(min_size=1, max_size=8),
    st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    max_size=6,
)


@given(VALUES, st.randoms(use_true_random=False))
def test_the_order_of_the_parameters_changes_nothing(values: dict[str, Value], random):
    shuffled = list(values.items())
    random.shuffle(shuffled)
    one, other = Config(values), Config(dict(shuffled))
    assert one == other
    assert (one.json, one.digest, hash(one)) == (other.json, other.digest, hash(other))


@given(VALUES)
def test_canonical_json_reads_back(values: dict[str, Value]):
    config = Config(values)
    assert Config.from_json(config.json) == config
    assert dict(Config.from_json(config.json)) == values


@given(VALUES)
def test_a_config_survives_pickling(values: dict[str, Value]):
    config = Config(values)
    assert pickle.loads(pickle.dumps(config)) == config


def test_canonical_json_has_sorted_keys_and_no_spaces():
    config = Config({"num_warps": 8, "BLOCK_M": 128, "EVEN_K": True, "ACC": "fp32"})
    assert config.json == '{"ACC":"fp32","BLOCK_M":128,"EVEN_K":true,"num_warps":8}'
    assert config.digest == "ed0264d9131c8080"


def test_values_of_different_types_make_different_configs():
    assert Config({"a": 1}) != Config({"a": True})
    assert Config({"a": 1}) != Config({"a": "1"})
    assert Config({"a": 1}) != {"a": 1}


def test_the_digest_is_the_same_in_every_process():
    program = "from gemmtune.engine.records.config import Config; print(Config({'b': 2, 'a': 1}).digest)"
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("0", "1")
    }
    assert digests == {Config({"a": 1, "b": 2}).digest}


def test_a_later_change_of_the_source_changes_nothing():
    values: dict[str, Value] = {"a": 1}
    config = Config(values)
    values["a"] = 2
    assert config["a"] == 1


def test_integer_refuses_other_types():
    config = Config({"n": 4, "flag": True, "name": "x"})
    assert config.integer("n") == 4
    for name in ("flag", "name"):
        with pytest.raises(TypeError, match=f"{name}=.* is not an integer"):
            config.integer(name)


def test_configs_that_params_span_are_those_of_their_values_in_the_order_of_the_params():
    params = (Param("warps", (4, 8)), Param("BLOCK", (32,)), Param("a", (True, False)))
    expected = [Config({"warps": w, "BLOCK": 32, "a": a}) for w in (4, 8) for a in (True, False)]
    assert [config.json for config in spanned(params)] == [config.json for config in expected]
