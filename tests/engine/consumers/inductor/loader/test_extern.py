"""A kernel is linked once per GPU, and starts as many clusters as that GPU runs."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from gemmtune.engine.consumers.inductor.loader.kernels import extern  # noqa: E402 (it imports torch)
from gemmtune.engine.records.epilogue.chain import NO_EPILOGUE  # noqa: E402 (as above)
from gemmtune.engine.records.epilogue.text import parse_epilogue  # noqa: E402 (as above)
from gemmtune.engine.tables.kernels.binary import KernelBinary  # noqa: E402 (as above)
from gemmtune.engine.toolchain.launching import cute_object  # noqa: E402 (as above)

NAME = "gemmtune_quack_gemm_0123456789abcdef"
KERNEL = KernelBinary(NAME, "cute::quack_gemm", "", ["a", ["clusters.4", None]], "nt", NO_EPILOGUE, {})


@pytest.fixture
def asked(monkeypatch):
    """GPUs and cluster sizes that the driver is asked for; GPU 1 runs one cluster less than GPU 0, GPU 2 runs none."""
    found = []

    def clusters(device, blocks):
        found.append((device, blocks))
        if device == 2:
            raise RuntimeError("GPU 2 runs no clusters of 4 blocks; it runs [1, 2]")
        return 30 - device

    monkeypatch.setattr(cute_object, "clusters_at_once", clusters)
    monkeypatch.setattr(cute_object, "load", lambda read: print)
    return found


def test_each_gpu_gets_its_own_number_of_clusters(asked):
    launcher = extern._Launcher(KERNEL)
    made = [bind({"a": "A"}) for _, bind in map(launcher.link, (0, 1, 0))]
    assert made == [("A", (30, None)), ("A", (29, None)), ("A", (30, None))]
    assert asked == [(0, 4), (1, 4)]


def test_operands_of_8_bits_that_no_kernel_reads_are_multiplied_by_aten_with_their_scales():
    epilogue = "mul(column[fp32]).mul(row[fp32]).add(row2)"
    launcher = extern._Launcher(KERNEL._replace(epilogue=parse_epilogue(epilogue)))
    whole = torch.randn(5 * 48 + 1).to(torch.float8_e4m3fn)
    a, b = whole[1:].view(5, 48), torch.randn(16, 48).to(torch.float8_e4m3fn).T  # no address of a kernel's
    column, row, bias = torch.rand(5, 1), torch.rand(1, 16), torch.randn(1, 16, dtype=torch.bfloat16)
    out = torch.empty(5, 16, dtype=torch.bfloat16)
    with pytest.warns(UserWarning, match="so ATen runs"):
        launcher(a, b, column, row, bias, out=out)
    right = (a.double() @ b.double()) * column.double() * row.double() + bias.double()
    torch.testing.assert_close(out.double(), right, rtol=2**-8, atol=2**-8)


def test_sums_of_whole_numbers_that_no_kernel_reads_are_exact():
    whole = torch.randint(100, 128, (5 * 8192 + 1,), dtype=torch.int8)
    a, b = whole[1:].view(5, 8192), torch.randint(100, 128, (16, 8192), dtype=torch.int8).T
    out = torch.empty(5, 16, dtype=torch.int32)
    with pytest.warns(UserWarning, match="so ATen runs"):
        extern._Launcher(KERNEL)(a, b, out=out)
    assert torch.equal(out.long(), a.long() @ b.long())  # fp32 holds no such sum


def test_a_gpu_without_such_clusters_gets_the_next_choice(asked):
    found = extern.link(KERNEL, 2)
    assert found == "cannot be linked: RuntimeError: GPU 2 runs no clusters of 4 blocks; it runs [1, 2]"
