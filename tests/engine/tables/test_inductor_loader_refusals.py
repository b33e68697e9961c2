from __future__ import annotations

import json
from importlib.util import find_spec

import pytest

from gemmtune.engine.records.device import Device
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.tables.inductor_exporter import lookup_key

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

H200 = Device("H200", "NVIDIA H200", "sm_90a", 132, 232448, 233472, 62914560, 65536, 2048, 1024, 32, 1980, 4800)
KEY = lookup_key(H200, Problem.parse("64x96x200:bf16:nt"))
ROW = {
    "template_id": "triton::mm",
    "BLOCK_M": 64,
    "BLOCK_N": 32,
    "BLOCK_K": 128,
    "GROUP_M": 8,
    "num_stages": 3,
    "num_warps": 4,
    "EVEN_K": False,
    "ACC_TYPE": "tl.float32",
    "USE_FAST_ACCUM": False,
}


@pytest.fixture
def loader():
    from gemmtune.engine.tables.loaders import inductor

    yield inductor
    inductor.uninstall()


@pytest.fixture
def file(tmp_path):
    return tmp_path / "lookup_table.json"


def chooser():
    from torch._inductor.virtualized import V

    return type(V.choices).__name__


def without(name):
    return {key: value for key, value in ROW.items() if key != name}


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("", ValueError, "not JSON, or truncated: line 1"),
        (json.dumps({KEY: [ROW]})[:-5], ValueError, "not JSON, or truncated: line 1"),
        ("[]", TypeError, "not a lookup table: its JSON is not an object"),
        ('{"a": [], "a": []}', ValueError, "a stands twice"),
    ],
)
def test_a_file_that_is_no_table_is_refused(loader, file, text, error, message):
    file.write_text(text)
    with pytest.raises(error, match=message) as caught:
        loader.install(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert chooser() == "InductorChoices"


@pytest.mark.parametrize(
    ("key", "rows", "error", "message"),
    [
        ("x", [ROW], ValueError, "not a key of the form"),
        (KEY.replace("+mm", "+addmm"), [ROW], ValueError, "not a key of the form"),
        (KEY.removeprefix("NVIDIA H200+"), [ROW], ValueError, "not a key of the form"),
        (
            KEY.replace("[200, 96]", "[100, 96]"),
            [ROW],
            ValueError,
            "A is bfloat16 with k=200, B is bfloat16 with k=100",
        ),
        (KEY.replace("bfloat16", "float16", 1), [ROW], ValueError, "A is float16 with k=200, B is bfloat16"),
        (KEY, ROW, TypeError, "not a list of objects"),
        (KEY, ["aten::mm"], TypeError, "not a list of objects"),
        (KEY, [], ValueError, "0 rows; one a key"),
        (KEY, [ROW, {"template_id": "aten::mm"}], ValueError, "2 rows; one a key, for Inductor benchmarks several"),
        (KEY, [{**ROW, "template_id": "triton::bmm"}], ValueError, "template_id='triton::bmm' is not aten::mm or"),
        (KEY, [without("template_id")], ValueError, "template_id=None"),
        (KEY, [without("EVEN_K")], ValueError, "fields that differ from those of triton::mm: EVEN_K"),
        (KEY, [{**ROW, "ALLOW_TF32": True}], ValueError, "triton::mm: ALLOW_TF32"),
        (KEY, [{"template_id": "aten::mm", "BLOCK_M": 64}], ValueError, "aten::mm: BLOCK_M"),
        (KEY, [{**ROW, "EVEN_K": True}], ValueError, "EVEN_K=True is wrong for k=200 and BLOCK_K=128"),
        (KEY, [{**ROW, "EVEN_K": 0}], ValueError, "EVEN_K=0 is wrong"),
        (KEY, [{**ROW, "BLOCK_M": "64"}], TypeError, "BLOCK_M='64' is not an integer"),
        (KEY, [{**ROW, "num_warps": True}], TypeError, "num_warps=True is not an integer"),
        (KEY, [{**ROW, "BLOCK_N": 48}], ValueError, "BLOCK_N=48 is not a power of 2 from 16 on"),
        (KEY, [{**ROW, "BLOCK_K": 8}], ValueError, "BLOCK_K=8 is not a power of 2 from 16 on"),
        (KEY, [{**ROW, "num_stages": 0}], ValueError, "num_stages=0 is not above 0"),
        (KEY, [{**ROW, "ACC_TYPE": "tl.float16"}], ValueError, "ACC_TYPE='tl.float16' is not 'tl.float32'"),
        (KEY, [{**ROW, "USE_FAST_ACCUM": 0}], ValueError, "USE_FAST_ACCUM=0 is not False"),
    ],
)
def test_a_row_it_cannot_vouch_for_is_refused_in_one_line(loader, file, key, rows, error, message):
    file.write_text(json.dumps({key: rows}))
    with pytest.raises(error, match=message) as caught:
        loader.install(file)
    assert str(caught.value).startswith(f"{file}: {key}: ")
    assert "\n" not in str(caught.value)
    assert chooser() == "InductorChoices"


def test_a_missing_file_is_named(loader, file):
    with pytest.raises(FileNotFoundError, match=r"lookup_table\.json"):
        loader.install(file)


def test_a_refused_second_table_leaves_the_first_in_place(loader, file):
    file.write_text(json.dumps({KEY: [ROW]}))
    loader.install(str(file))
    assert chooser() == "_TableChoices"
    file.write_text("{")
    with pytest.raises(ValueError, match="not JSON"):
        loader.install(file)
    assert chooser() == "_TableChoices"
    loader.uninstall()
    assert chooser() == "InductorChoices"


def test_another_handler_is_not_replaced(loader, file):
    from torch._inductor.choices import InductorChoices
    from torch._inductor.virtualized import V

    class Mine(InductorChoices):
        pass

    file.write_text("{}")
    with V.set_choices_handler(Mine()), pytest.raises(RuntimeError, match="Mine: remove it first"):
        loader.install(file)


def test_an_untested_torch_is_warned_of(loader, file, monkeypatch):
    file.write_text("{}")
    monkeypatch.setattr("torch.__version__", "2.99.0")
    with pytest.warns(UserWarning, match=r"tested with torch 2\.11, 2\.12, 2\.13, not 2\.99\.0"):
        loader.install(file)


def test_options_allow_triton_rows_and_keep_k(loader):
    assert loader.options() == {"max_autotune_gemm": True, "shape_padding": False}
