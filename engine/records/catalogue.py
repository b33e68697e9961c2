"""The GPUs we know, from `devices.toml` beside this file; nothing here queries one."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import DeviceError

__all__ = ["by_name", "device", "devices"]


def devices() -> tuple[Device, ...]:
    """Every known device, sorted by its sku."""
    return tuple(dict.fromkeys(_by_sku().values()))


def device(sku: str) -> Device:
    """The device of that sku; case, spaces, `-` and `_` do not count, so `rtx 4090` finds RTX-4090.

    Raises:
        DeviceError: there is none; the message lists those there are.
    """
    try:
        return _by_sku()[_fold(sku)]
    except KeyError:
        raise DeviceError(f"no device {sku!r}; known: {', '.join(d.sku for d in devices())}") from None


def by_name(name: str) -> Device | None:
    """The device whose driver reports that name, `NVIDIA H200`; None where the catalogue lacks it."""
    return next((d for d in devices() if d.name == name), None)


def _fold(sku: str) -> str:
    return re.sub(r"[\s_-]", "", sku).casefold()


@cache
def _by_sku() -> Mapping[str, Device]:
    """Folded sku to device, in the file's order; a device stands under each sku that means it."""
    catalogue = tomllib.loads(files("gemmtune.engine.records").joinpath("devices.toml").read_text(encoding="utf-8"))
    found: dict[str, Device] = {}
    for fields in catalogue["device"]:
        others = fields.pop("also", ())
        arch = fields["arch"]
        fields["source"] += (
            f"; limits of {arch}: CUDA Programming Guide, technical specifications per compute capability"
        )
        clusters = fields.pop("active_clusters", {})
        asked = tuple((int(size), count) for size, count in clusters.items())
        record = Device(**fields, **catalogue["limits"][arch], active_clusters=asked)
        found |= {_fold(name): record for name in (record.sku, *others)}
    return found
