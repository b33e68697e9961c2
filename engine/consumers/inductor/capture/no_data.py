"""Tensors with the sizes of others and no data, those of quantised weights by their parts. Imports torch."""

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from gemmtune.engine.consumers.inductor.capture.data_on_cpu import has_values
from gemmtune.engine.consumers.inductor.capture.fake_gpu import GPU
from gemmtune.engine.records.errors import UsageError

_PLAIN = (torch.Tensor, torch.nn.Parameter, FakeTensor)


def without_data(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of a kind, sizes and strides on the GPU, and without data; the values of a small one stay known.

    A wrapper, such as a quantised weight or a shard, is made of parts without data.

    Raises:
        UsageError: the tensor is sparse, or its class does not say of which parts it is made.
    """
    if is_traceable_wrapper_subclass(tensor):
        names, context = tensor.__tensor_flatten__()
        parts = {name: getattr(tensor, name) for name in names}  # a shard's mesh among them
        parts = {name: without_data(part) if isinstance(part, torch.Tensor) else part for name, part in parts.items()}
        made: torch.Tensor = type(tensor).__tensor_unflatten__(parts, context, tensor.size(), tensor.stride())
        made = made if made.device.type == GPU.type else made.to(GPU)
    elif type(tensor) not in _PLAIN and (vars(tensor) or _has_own_operations(type(tensor))):
        raise UsageError(
            f"a tensor of the model is a {type(tensor).__name__}, which computes its own way and names no parts "
            "(__tensor_flatten__) to compute without data: capture the model on a machine with the GPU"
        )
    elif tensor.layout is not torch.strided:
        what = f"a tensor of {[*tensor.shape]} has {tensor.layout}"
        raise UsageError(f"{what}, whose products have no rows: convert it with to_dense()")
    else:
        made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=GPU)
        if has_values(tensor) and (moved := tensor.detach().to(GPU)).stride() == made.stride():
            made = moved
    return torch.nn.Parameter(made, tensor.requires_grad) if isinstance(tensor, torch.nn.Parameter) else made


def is_on_fake_gpu(tensor: torch.Tensor) -> bool:
    """Return whether a tensor, or each of its parts, has no data and is on the GPU."""
    if is_traceable_wrapper_subclass(tensor):
        parts = [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]]
        return all(is_on_fake_gpu(part) for part in parts if isinstance(part, torch.Tensor))
    return isinstance(tensor, FakeTensor) and tensor.device.type == GPU.type


def _has_own_operations(kind: Any) -> bool:  # noqa: ANN401 (a class of tensors)
    """Return whether a class of tensors, or one between it and torch's own, replaces operations of torch."""
    between = [each for each in kind.__mro__ if issubclass(each, torch.Tensor) and each not in _PLAIN]
    return any(name in vars(each) for each in between for name in ("__torch_function__", "__torch_dispatch__"))
