from __future__ import annotations

import re
from dataclasses import fields, replace

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import DeviceError

EVERY_DEVICE = pytest.mark.parametrize("device", catalogue.devices(), ids=lambda device: device.sku)


def test_the_catalogue_has_the_supported_devices():
    known = {device.sku for device in catalogue.devices()}
    assert known >= {"H200", "H100-SXM", "H100-PCIe", "GH200", "A100-40GB", "A100-80GB", "B200", "RTX-4090", "L4"}


def test_skus_and_names_are_unique_and_sorted():
    skus = [device.sku for device in catalogue.devices()]
    assert skus == sorted(skus)
    assert len(set(skus)) == len(skus)
    assert len({device.name for device in catalogue.devices()}) == len(skus)


@EVERY_DEVICE
def test_every_record_has_a_source_and_an_arch_of_its_generation(device: Device):
    assert len(device.source) > 20
    assert re.fullmatch(r"sm_(80|86|89|90a|100a|120a)", device.arch)
    assert (
        device.capability
        == {
            "sm_80": (8, 0),
            "sm_86": (8, 6),
            "sm_89": (8, 9),
            "sm_90a": (9, 0),
            "sm_100a": (10, 0),
            "sm_120a": (12, 0),
        }[device.arch]
    )


@EVERY_DEVICE
def test_every_figure_is_plausible(device: Device):
    for field in fields(Device):
        if field.name not in ("sku", "name", "arch", "source", "active_clusters", "peaks"):
            assert isinstance(getattr(device, field.name), int)
    # One block cannot have the last KiB of a multiprocessor's shared memory: CUDA keeps it.
    assert device.shared_memory_per_block_bytes == device.shared_memory_per_sm_bytes - 1024
    assert device.max_threads_per_sm % device.warp_size == 0
    assert 20 <= device.sm_count <= 200
    assert 2**20 <= device.l2_bytes <= 2**28
    assert 1_000 <= device.boost_clock_mhz <= 3_000
    assert 200 <= device.memory_bandwidth_gb_s <= 10_000
    assert "/" not in device.sku  # a task's key separates with it


def test_the_h200_has_the_values_read_on_one():
    device = catalogue.device("H200")
    assert device.name == "NVIDIA H200"
    assert (device.arch, device.capability, device.sm_count) == ("sm_90a", (9, 0), 132)
    assert (device.shared_memory_per_block_bytes, device.l2_bytes) == (232_448, 62_914_560)
    assert (device.boost_clock_mhz, device.memory_bandwidth_gb_s) == (1_980, 4_800)
    assert dict(device.peaks) == {"fp32": 67, "tf32": 494.5, "bf16": 989.5, "fp16": 989.5, "fp8": 1979, "int8": 1979}


@pytest.mark.parametrize(
    ("sku", "clusters"),
    [("H200", [132, 66, 29, 14, 7]), ("B200", [148, 74, 33, 16, 8]), ("L4", [58, 29, 13, 6, 3])],
)
def test_clusters_fit_in_gpcs_of_18_multiprocessors_without_a_driver_value(sku: str, clusters: list[int]):
    device = replace(catalogue.device(sku), active_clusters=())
    assert [device.max_active_clusters(size) for size in (1, 2, 4, 8, 16)] == clusters
    assert all(size * count <= device.sm_count for size, count in zip((1, 2, 4, 8, 16), clusters, strict=True))


def test_a_driver_value_replaces_the_formula_and_does_not_change_equality():
    device = catalogue.device("B200")
    board = replace(device, active_clusters=((1, 148), (4, 31)))
    assert [board.max_active_clusters(size) for size in (1, 2, 4)] == [148, 74, 31]
    assert board == device


def test_a_device_is_known_by_its_figures():
    device = catalogue.device("H200")
    assert catalogue.known(replace(device, active_clusters=(), source="a file")) is device
    other = replace(device, sku="H200-NVL")
    assert catalogue.known(other) is other


@EVERY_DEVICE
def test_peaks_are_dense_and_agree_with_each_other_and_with_the_cores(device: Device):
    peak = dict(device.peaks)
    if not peak:
        assert device.sku in ("A10G", "RTX-4060")  # no document was seen that gives them
        return
    cores = {"sm_80": 64}.get(device.arch, 128) * device.sm_count
    assert peak["fp32"] == pytest.approx(2 * cores * device.boost_clock_mhz * 1e-6, rel=0.11)
    assert peak["bf16"] == peak["fp16"] == pytest.approx(2 * peak["tf32"], rel=0.03)
    eight_bits = {name: peak[name] for name in ("fp8", "fp8 in fp16", "int8") if name in peak}
    most = max(eight_bits.values(), default=None)  # no document was seen that gives a 3090's
    if device.sku == "RTX-3090":
        assert most is None
    else:
        assert most == pytest.approx((4 if "RTX" in device.sku else 2) * peak["bf16"], rel=0.02)
    assert ("fp8" in peak) == (device.capability >= (8, 9))
    assert all(peak[name] <= 2 * peak[name.split()[0]] for name in peak)


@EVERY_DEVICE
def test_the_driver_values_are_plausible(device: Device):
    for size, clusters in device.active_clusters:
        assert size in (1, 2, 4, 8, 16)
        assert 0 < size * clusters <= device.sm_count
        assert device.has_clusters
    assert dict(device.active_clusters).get(1, device.sm_count) == device.sm_count


@pytest.mark.parametrize(
    ("text", "sku"),
    [("h200", "H200"), ("RTX 4090", "RTX-4090"), ("rtx4090", "RTX-4090"), ("H100", "H100-SXM"), ("a100", "A100-80GB")],
)
def test_a_device_is_found_however_its_sku_is_spelled(text: str, sku: str):
    assert catalogue.device(text).sku == sku


@EVERY_DEVICE
def test_a_device_is_found_by_the_name_its_driver_reports(device: Device):
    assert catalogue.by_name(device.name) is device
    assert catalogue.device(device.sku) is device


def test_an_unknown_device_is_refused_with_the_known_ones():
    with pytest.raises(
        DeviceError, match=r"^no device 'H300'; did you mean H200\? known: A100-40GB, .*, H200, .*, RTX-5090$"
    ):
        catalogue.device("H300")
    assert catalogue.by_name("NVIDIA H300") is None


def test_the_source_does_not_change_equality():
    device = catalogue.device("H200")
    figures = {field.name: getattr(device, field.name) for field in fields(Device)}
    assert Device(**figures | {"source": "elsewhere"}) == device
