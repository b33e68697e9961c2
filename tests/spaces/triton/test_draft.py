"""First drafts of classes, from kernels as people write them: what they say, and that they are right on numbers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="triton is not installed")

import torch

import gemmtune as gt
from gemmtune.engine.records.errors import ProblemError
from gemmtune.engine.seams.kinds import expand_workloads
from gemmtune.spaces.triton.definition import module_of
from gemmtune.spaces.triton.draft import draft

KERNELS = """
import triton
import triton.language as tl

@triton.autotune([triton.Config({"BLOCK": block}) for block in (256, 512)], key=["n"])
@triton.jit
def silu_mul_kernel(out_ptr, a_ptr, b_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(a_ptr + at, mask=at < n).to(tl.float32)
    b = tl.load(b_ptr + at, mask=at < n)
    tl.store(out_ptr + at, (a * tl.sigmoid(a)).to(b.dtype) * b, mask=at < n)

@triton.jit
def softmax_kernel(output_ptr, input_ptr, input_row_stride, output_row_stride, n_cols, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < n_cols
    x = tl.load(input_ptr + row * input_row_stride + cols, mask=mask, other=-float("inf"))
    x = x - tl.max(x, axis=0)
    exp = tl.exp(x)
    tl.store(output_ptr + row * output_row_stride + cols, exp / tl.sum(exp, axis=0), mask=mask)

@triton.jit
def layer_norm_kernel(X, Y, W, B, Mean, Rstd, stride, N, eps, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0)
    Y += row * stride
    X += row * stride
    _mean = tl.zeros([BLOCK_SIZE], dtype=tl.float32)
    for off in range(0, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE)
        _mean += tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
    mean = tl.sum(_mean, axis=0) / N
    _var = tl.zeros([BLOCK_SIZE], dtype=tl.float32)
    for off in range(0, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE)
        x = tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
        x = tl.where(cols < N, x - mean, 0.0)
        _var += x * x
    rstd = 1 / tl.sqrt(tl.sum(_var, axis=0) / N + eps)
    tl.store(Mean + row, mean)
    tl.store(Rstd + row, rstd)
    for off in range(0, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE)
        x = tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
        y = (x - mean) * rstd * tl.load(W + cols, mask=cols < N) + tl.load(B + cols, mask=cols < N)
        tl.store(Y + cols, y, mask=cols < N)

@triton.autotune(
    [triton.Config({"BLOCK_M": 64, "BLOCK_N": n, "BLOCK_K": 32, "GROUP_M": 8}) for n in (32, 64)], key=["M", "N", "K"]
)
@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bn, stride_bk, stride_cm, stride_cn,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr):
    pid = tl.program_id(axis=0)
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * num_pid_n
    first = (pid // in_group) * GROUP_M
    height = min(num_pid_m - first, GROUP_M)
    pid_m = first + (pid % in_group) % height
    pid_n = (pid % in_group) // height
    offs_am = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    offs_bn = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + (offs_am[:, None] * stride_am + offs_k[None, :] * stride_ak)
    b_ptrs = b_ptr + (offs_k[:, None] * stride_bk + offs_bn[None, :] * stride_bn)
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BLOCK_K, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BLOCK_K, other=0.0)
        accumulator = tl.dot(a, b, accumulator)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    offs_cm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_cn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_ptrs = c_ptr + stride_cm * offs_cm[:, None] + stride_cn * offs_cn[None, :]
    tl.store(c_ptrs, accumulator.to(tl.bfloat16), mask=(offs_cm[:, None] < M) & (offs_cn[None, :] < N))

@triton.jit
def copy_kernel(X, Out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    x = tl.make_tensor_descriptor(X, [M, N], [N, 1], [BM, BN])
    out = tl.make_block_ptr(Out, (M, N), (N, 1), (tl.program_id(0) * BM, tl.program_id(1) * BN), (BM, BN), (1, 0))
    tl.store(out, x.load([tl.program_id(0) * BM, tl.program_id(1) * BN]))

@triton.jit
def causal_kernel(out_ptr, x_ptr, stride_out, stride_x, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=0.0)
    x = tl.where(cols <= row, x, -float("inf"))
    tl.store(out_ptr + row * stride_out + cols, x - tl.max(x, axis=0), mask=cols < n_cols)

@triton.jit
def repeat_kernel(out_ptr, x_ptr, n, times, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    for _ in range(times):
        x = x * 2
    tl.store(out_ptr + at, x, mask=at < n)

@triton.jit
def gather_kernel(out, places, table, D, BLOCK: tl.constexpr):
    token = tl.program_id(0)
    row = tl.load(places + token)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + token * D + cols, tl.load(table + row * D + cols, mask=cols < D), mask=cols < D)

@triton.jit
def scale_kernel(x, n, alpha, IS_NEW: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    if IS_NEW:
        value = value * alpha
    tl.store(x + at, value, mask=at < n)

@triton.jit
def persistent_kernel(out, x, n, helper_ptr, BLOCK: tl.constexpr):
    for block in range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0)):
        at = block * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)

def no_kernel():
    pass
"""
NAMES = re.findall(r"def (\w+_kernel)\(\w", KERNELS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("drafts")
    (path / "kernels.py").write_text(KERNELS)
    return path


@pytest.fixture
def drafted(folder):
    """Return a function that writes a kernel's draft, its marks deleted, and returns the class and what was marked."""

    def write(name: str):
        title, text = draft(f"{folder / 'kernels.py'}:{name}")
        file = folder / f"{name}_adapter.py"
        file.write_text("\n".join(line for line in text.splitlines() if "# TODO(gemmtune)" not in line))
        return getattr(module_of(file), title)(), re.findall(r"# TODO\(gemmtune\): (.*)", text)

    return write


CASES = "sizes that your program runs, a line per case"
PARAMS = "values to try, and the config that your program runs today"


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("silu_mul_kernel", [CASES]),
        ("softmax_kernel", [PARAMS, CASES]),
        ("layer_norm_kernel", [PARAMS, CASES]),
        ("matmul_kernel", [CASES]),
        ("copy_kernel", [PARAMS, CASES]),
        ("causal_kernel", [PARAMS, CASES, "what the kernel computes, with torch"]),
        ("repeat_kernel", [PARAMS, CASES, "what the kernel computes, with torch"]),
        ("gather_kernel", [PARAMS, CASES, "what the kernel computes, with torch"]),
        ("scale_kernel", [PARAMS, CASES, "values of IS_NEW in your program", "what the kernel computes, with torch"]),
    ],
)
def test_a_simple_kernel_leaves_its_sizes_and_what_its_source_does_not_say(folder, drafted, name, left):
    instance, marked = drafted(name)
    assert marked == left
    if len(left) < 4:
        case = expand_workloads(f"triton:{folder / f'{name}_adapter.py'}:{type(instance).__name__}")[0]
        assert case.sizes == next(iter(instance.cases.values()))


def test_variables_that_feed_each_other_are_read_in_time(tmp_path):
    steps = "".join("    a = a + b\n    b = b + a\n" for _ in range(12))
    (tmp_path / "mixing.py").write_text(
        "import triton\nimport triton.language as tl\n\n@triton.jit\n"
        "def mixing(x, out, n, BLOCK: tl.constexpr):\n    a = tl.arange(0, BLOCK)\n    b = a\n"
        + steps
        + "    m = tl.cdiv(n, div=BLOCK)\n    tl.store(out + a, tl.load(x + b))\n"
    )
    assert "class Mixing" in draft(f"{tmp_path / 'mixing.py'}:mixing")[1]


def test_what_nobody_can_read_is_named(drafted):
    _, marked = drafted("persistent_kernel")
    assert "shapes of helper_ptr, and whether they are among the outputs" in marked
    assert "blocks to launch along each axis, as your program does" in marked


def test_in_place_gather_and_grid_are_read(drafted):
    assert drafted("scale_kernel")[0].restore == ("x",)
    assert drafted("gather_kernel")[0].cases["one"] == {"rows": 4096, "D": 4096, "table_rows": 4096}
    copy = drafted("copy_kernel")[0]
    assert copy.grid({"M": 100, "N": 1000}, {"BM": 32, "BN": 64}) == (4, 16)
    assert drafted("matmul_kernel")[0].grid({"M": 100, "N": 65, "K": 9}, {"BLOCK_M": 64, "BLOCK_N": 32}) == (6,)
    assert drafted("softmax_kernel")[0].grid({"rows": 7, "n_cols": 9}, {}) == (7,)


def right(name: str, x: torch.Tensor, given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    if name == "silu_mul_kernel":
        return {"out_ptr": torch.nn.functional.silu(x) * given["b_ptr"]}
    if name == "softmax_kernel":
        return {"output_ptr": torch.softmax(x, -1)}
    if name == "matmul_kernel":
        return {"c_ptr": x @ given["b_ptr"].T}
    var, mean = torch.var_mean(x, -1, correction=0)
    normal = torch.nn.functional.layer_norm(x, x.shape[-1:], given["W"], given["B"], 1e-6)
    return {"Y": normal, "Mean": mean, "Rstd": torch.rsqrt(var + 1e-6)}


@pytest.mark.parametrize("name", ["silu_mul_kernel", "softmax_kernel", "layer_norm_kernel", "matmul_kernel"])
def test_a_reference_that_was_read_from_the_source_is_right(drafted, name):
    instance, _ = drafted(name)
    sizes = dict(zip(next(iter(instance.cases.values())), (5, 7, 3), strict=False))
    random = torch.Generator().manual_seed(0)

    class Make:
        def normal(self, shape: tuple[int, ...], _dtype: object = None) -> torch.Tensor:
            return torch.randn(shape, dtype=torch.float64, generator=random)

        empty = normal

    arguments = instance.arguments(sizes, Make())
    x = next(value for key, value in arguments.items() if key in ("a_ptr", "input_ptr", "X"))
    expected = right(name, x, arguments)
    found = instance.reference(sizes, arguments)
    assert found.keys() == expected.keys() == set(instance.outputs)
    for output, values in expected.items():
        assert found[output].shape == arguments[output].shape
        torch.testing.assert_close(found[output], values)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("name", ["silu_mul_kernel", "softmax_kernel", "layer_norm_kernel", "matmul_kernel"])
def test_a_filled_draft_is_tuned_and_its_kernel_is_right(folder, drafted, name):
    title = type(drafted(name)[0]).__name__
    result = gt.tune(f"triton:{folder / f'{name}_adapter.py'}:{title}", budget=3)
    (row,) = result.table.rows
    assert row.baseline is not None, "the default's outputs are what the reference says"
    assert {choice.space for choice in row.choices} == {"triton_kernel", "triton_default"}


def test_every_draft_is_formatted_and_refused_by_name_until_it_is_filled_in(folder):
    files = [folder / f"draft_{name}.py" for name in NAMES]
    for name, file in zip(NAMES, files, strict=True):
        title, text = draft(f"{folder / 'kernels.py'}:{name}")
        file.write_text(text)
        with pytest.raises(ProblemError, match=f"is a draft; fill in.*{CASES}"):
            expand_workloads(f"triton:{file}:{title}")
    ruff = [Path(sys.executable).with_name("ruff"), "format", "--isolated", "--check", *files]
    done = subprocess.run(ruff, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("file", ["my-kernels.py", "class.py", "plain.py"])
@pytest.mark.parametrize("name", ["true", "none_kernel", "torch", "make"])
def test_names_that_python_or_a_class_has_for_something_else_are_written_around(tmp_path, monkeypatch, file, name):
    monkeypatch.delitem(sys.modules, Path(file).stem, raising=False)
    (tmp_path / file).write_text(
        "import triton\nimport triton.language as tl\n\n@triton.jit\n"
        f"def {name}(case, make, torch, n, BLOCK: tl.constexpr):\n"
        "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(case + at, tl.load(make + at, mask=at < n) + tl.load(torch + at, mask=at < n), mask=at < n)\n"
    )
    title, text = draft(f"{tmp_path / file}:{name}")
    written = tmp_path / "written.py"
    written.write_text("\n".join(line for line in text.splitlines() if "# TODO(gemmtune)" not in line))
    (case,) = expand_workloads(f"triton:{written}:{title}")
    assert case.sizes.keys() == {"n"}
    values = {"make": torch.ones(3), "torch": torch.ones(3)}
    assert getattr(module_of(written), title)().reference({"n": 3}, values)["case"].tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("{}/my.kernels.py:x", "rename my.kernels.py"),
        ("kernels", "is not MODULE:KERNEL or FILE.py:KERNEL"),
        ("{}/kernels.py:softmx_kernel", "did you mean softmax_kernel"),
        ("{}/kernels.py:no_kernel", "has no kernel no_kernel of Triton"),
        ("{}/gone.py:x", "no file"),
        ("torch:nn", "torch has no kernel nn of Triton; known: none"),
        ("gone_module:x", "gone_module cannot be imported: ModuleNotFoundError"),
    ],
)
def test_what_is_no_kernel_is_refused(folder, named, said):
    with pytest.raises(ProblemError, match=re.escape(said)):
        draft(named.format(folder))


def test_a_file_that_imports_its_package_is_refused_with_its_module_as_the_way_out(tmp_path):
    inner = tmp_path / "kernel_package" / "inner"
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent):
        (folder / "__init__.py").touch()
    (inner / "part.py").write_text("from .other import x\n")
    with pytest.raises(ProblemError, match=re.escape(f": name kernel_package.inner.part:k in {tmp_path}")):
        draft(f"{inner / 'part.py'}:k")
    (inner / "part.py").write_text("1 / 0\n")
    with pytest.raises(ProblemError, match=r"ZeroDivisionError: division by zero \(\S+part.py, line 1\)$"):
        draft(f"{inner / 'part.py'}:k")


def test_an_option_that_the_kernel_takes_as_an_argument_is_a_param(tmp_path):
    loop = "    for i in tl.range(0, n, num_stages=num_stages):\n        tl.store(out + i, 0)\n"
    text = f"@triton.jit\ndef fill(out, n, num_stages: tl.constexpr):\n{loop}"
    (tmp_path / "fill_of_draft.py").write_text(f"import triton\nimport triton.language as tl\n\n{text}")
    _, drafted = draft(f"{tmp_path / 'fill_of_draft.py'}:fill")
    assert '"num_stages": (2, 3, 4, 5),' in drafted
    assert '"num_stages": 3,' in drafted
