"""Values of tensors that the mask of an attention reads, as its problem states them. Imports torch."""

from collections.abc import Mapping, Sequence

import torch

from gemmtune.engine.records.flex.attention import Flex
from gemmtune.engine.records.flex.masks import MOST_DOCUMENTS
from gemmtune.engine.records.flex.tensors import Holds, MaskTensor, tensors_of

_MOST_DOCUMENTS = 64  # whose lengths a problem lists


def stated_values(
    attention: Flex, read: Sequence[torch.Tensor | None], counts: Sequence[torch.Tensor | None]
) -> Mapping[str, str]:
    """Return texts of what is known of the tensors that a mask reads, by the fields of a problem.

    Args:
        attention: attention whose mask reads.
        read: values of each tensor, None where they are unknown.
        counts: blocks of keys that each block of queries sees in part, and in full; None where they are unknown.
    """
    found: dict[str, str] = {}
    for tensor, value in zip(tensors_of(attention.mask), read, strict=True):
        if tensor.holds is Holds.SEEN and "seen" not in found:
            found |= _seen(attention, counts)
        elif value is not None and tensor.holds is Holds.DOCUMENTS and "documents" not in found:
            found |= _documents(attention, tensor, value)
        elif value is not None and tensor.holds is Holds.LENGTHS and "lengths" not in found:
            ends = (100 * float(its) / attention.keys for its in (value.min(), value.max()))
            least, most = (min(100, max(0, round(each))) for each in ends)
            found |= {"lengths": f"{least}.{max(1, most)}"} if value.max() > 0 else {}  # zeros are not filled in yet
    return found


def _documents(attention: Flex, tensor: MaskTensor, value: torch.Tensor) -> dict[str, str]:
    """Return the lengths of the first sequence's documents, or their number if there are many or the length is open."""
    place = next(at for at, axis in enumerate(tensor.axes) if axis in ("s", "q", "kv"))
    one = value.movedim(place, -1).reshape(-1, value.shape[place])[0]
    ids, lengths = torch.unique_consecutive(one, return_counts=True)
    if len(ids) != len(ids.unique()):
        return {}
    whole = len(one) == attention.longest and not attention.dynamic
    if whole and 1 < len(ids) <= _MOST_DOCUMENTS:
        return {"documents": ".".join(map(str, lengths.tolist()))}
    return {"documents": str(min(len(ids), MOST_DOCUMENTS))}


def _seen(attention: Flex, counts: Sequence[torch.Tensor | None]) -> dict[str, str]:
    """Return the percentages of blocks that are seen in full and in part."""
    partly, fully = counts
    if partly is None or fully is None:
        return {}
    columns = -(-attention.keys // attention.block_kv)
    return {"seen": ".".join(str(round(100 * float(its.double().mean()) / columns)) for its in (fully, partly))}
