"""A score's gradient as kernels compute it, and the launch of a decoding kernel, which sums parts for a check alone."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from gemmtune.engine.measure.operands.operand_memory import OperandMemory  # noqa: E402
from gemmtune.engine.measure.operands.operand_sets import OperandSets  # noqa: E402
from gemmtune.engine.measure.problem_setup import ProblemSetup  # noqa: E402 (it imports torch)
from gemmtune.engine.records.flex.attention import Flex  # noqa: E402
from gemmtune.engine.records.measurement import ReferenceLevel  # noqa: E402
from gemmtune.spaces.flex import reference  # noqa: E402
from gemmtune.spaces.inductor import flex_kernel  # noqa: E402

DECODE = Flex.parse("flex:decode:b2:h4:kvh2:q1:kv64:d16:bf16")


class Parts:
    """Binary that writes one whole part of the output, and one of keys that nobody sees."""

    def __init__(self, *_):
        self.parts = ()

    def __call__(self, q, k, v, *rest):
        acc, m, l = self.parts  # noqa: E741 (Inductor's name)
        out, lse = reference.forward(DECODE, q, k, v, ())
        acc[:, 0], m[:, 0], l[:, 0] = out, lse, 1.0
        acc[:, 1], m[:, 1], l[:, 1] = 0.0, -torch.inf, 0.0


@pytest.fixture
def kernel():
    made = object.__new__(flex_kernel.FlexKernel)
    binary = Parts()
    binary.parts = tuple(torch.empty(2, 2, 4, 1, *rest) for rest in ((16,), (), ()))
    vars(made).update(_kernel=binary, _parts=binary.parts)
    return made


def test_a_check_sums_the_parts_of_a_launch_and_a_timing_does_not(kernel):
    sets = OperandSets.make(DECODE, True, 1, 1 << 20, OperandMemory(torch.device("cpu"), [], list))
    setup = ProblemSetup(DECODE, sets, ReferenceLevel("torch 2.13.0", "GPU-0", 1000.0))
    assert setup.check(kernel, 0).reason == ""
    *_, out = arguments = sets.kernel[0].arguments
    assert isinstance(out, torch.Tensor)
    out.fill_(7)
    kernel(*arguments)
    assert bool((out == 7).all())


def test_a_gradient_is_that_of_the_score_and_not_of_its_own_gradient():
    pytest.importorskip("triton", reason="triton is not installed")
    from gemmtune.spaces.flex.torch_functions import score_function
    from gemmtune.spaces.inductor.flex import score_graphs

    capped = Flex.parse("flex:backward:b1:h4:s64:d16:bf16:score=softcap(2)")
    _, joint = score_graphs(score_function(capped), torch.float32)
    score, grad = torch.tensor(1.5), torch.tensor(10.0)
    found, *_ = joint.graph_module(score, *[torch.tensor(0)] * 4, grad)
    assert float(found) == pytest.approx(float(grad * (1 - torch.tanh(score / 2) ** 2)))
