"""Catalogue of known GPUs, read from `devices.toml` without querying one."""

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import DeviceError, did_you_mean

_LIMITS_SOURCE = "CUDA Programming Guide, technical specifications per compute capability"


def devices() -> tuple[Device, ...]:
    """Return every known device, in the file's order."""
    return tuple(dict.fromkeys(_by_sku().values()))


def device(sku: str) -> Device:
    """Return the device of a sku, ignoring case, spaces, `-` and `_`: `rtx 4090` finds RTX-4090.

    Raises:
        DeviceError: no device has that sku; the message lists the known ones.
    """
    try:
        return _by_sku()[_fold(sku)]
    except KeyError:
        if re.fullmatch(r"(cuda|gpu)(:\d+)?|\d+", sku.casefold()):
            here = "a GPU of this machine, and a device is a model of GPU: leave it out for this machine's"
            raise DeviceError(
                f"{sku!r} names {here} (CUDA_VISIBLE_DEVICES chooses one), or name its model, H200"
            ) from None
        skus = [each.sku for each in devices()]
        raise DeviceError(f"no device {sku!r}; {did_you_mean(sku, skus)}known: {', '.join(skus)}") from None


def same_sku(one: str, other: str) -> bool:
    """Return whether two texts name one sku, ignoring what `device` ignores."""
    return _fold(one) == _fold(other)


def by_name(name: str) -> Device | None:
    """Return the device whose driver reports that name, such as `NVIDIA H200`, or None if it is unknown."""
    return next((d for d in devices() if d.name == name), None)


def known(device: Device) -> Device:
    """Return the catalogue's equal device, with source, active clusters and peaks; the device itself without one."""
    return next((each for each in devices() if each == device), device)


def _fold(sku: str) -> str:
    return re.sub(r"[\s_-]", "", sku).casefold()


@cache
def _by_sku() -> Mapping[str, Device]:
    """Return the devices by folded sku, in the file's order; a device has an entry per alias."""
    catalogue = tomllib.loads(files("gemmtune.engine.records").joinpath("devices.toml").read_text(encoding="utf-8"))
    found: dict[str, Device] = {}
    for fields in catalogue["device"]:
        arch, aliases, clusters = fields["arch"], fields.pop("also", ()), fields.pop("active_clusters", {})
        fields["source"] += f"; limits of {arch}: {_LIMITS_SOURCE}"
        fields["active_clusters"] = tuple((int(size), count) for size, count in clusters.items())
        fields["peaks"] = tuple((name, float(peak)) for name, peak in fields.pop("peak_tflops", {}).items())
        record = Device(**fields, **catalogue["limits"][arch])
        found |= {_fold(name): record for name in (record.sku, *aliases)}
    return found
