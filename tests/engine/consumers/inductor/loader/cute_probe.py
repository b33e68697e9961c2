"""Probe for its own process: rows of CuTe kernels in the installed Inductor, without a GPU, as in inductor_probe.py.

Arguments: the folder of an export, a JSON list of cases as for inductor_probe.py. Prints one JSON object.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
import warnings
from unittest.mock import patch

import torch
from inductor_probe import cache_key, choose, dynamic, with_warnings
from torch._inductor.select_algorithm import extern_kernels

DYNAMIC_HINT = 8


def versions_without(package, instead=None):
    """Return importlib's `version` with another answer for one package."""
    known = importlib.metadata.version

    def version(name):
        if name != package:
            return known(name)
        if instead is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return instead

    return version


def called(kernel, case, offset):
    """Call a kernel with operands on the CPU that start `offset` elements after a multiple of 16 bytes."""
    m, n, k = case["m"], case["n"], case["k"]
    memory = torch.randn(offset + m * k, dtype=torch.bfloat16)
    a, b = memory[offset:].view(m, k), torch.randn(n, k, dtype=torch.bfloat16).t()
    bias = [torch.randn(n, dtype=torch.bfloat16).expand(m, n)] if case["op"] == "addmm" else []
    out = torch.empty(m, n, dtype=torch.bfloat16)
    expected = torch.addmm(*bias, a, b) if bias else torch.mm(a, b)
    try:
        getattr(extern_kernels, kernel)(*bias, a, b, out=out)
    except Exception as error:
        return type(error).__name__
    return torch.equal(out, expected)


def main(export, cases):
    sys.path.insert(0, export)
    import gemmtune_inductor
    from gemmtune_inductor import binaries, binary, cute_object

    static = [case for case in cases if not case["dynamic"]]
    ranged = next(case for case in cases if case["dynamic"])
    report = {}

    def lowered():
        found = {case["name"]: choose(case, ended=True) for case in static}
        found["dynamic"] = dynamic(ranged, DYNAMIC_HINT, ended=True)
        return found

    def installed(key, **settings):
        (_, of_install) = with_warnings(lambda: gemmtune_inductor.install(**settings))
        found, of_lowering = with_warnings(lowered, times=2)
        report[key] = {
            "choices": found,
            "warnings": [*of_install, *of_lowering],
            "use": gemmtune_inductor.report().to_dict(),
            "text": str(gemmtune_inductor.report()),
            "key": cache_key(),
        }

    with patch.object(binaries, "link", lambda kernel, device: ""):  # there is no driver here
        installed("here")
        installed("again")
        report["same"] = [
            getattr(extern_kernels, name).choice.name == name for name in gemmtune_inductor._read(None).kernels
        ]
        report["aot"], _ = with_warnings(lambda: dynamic(ranged, DYNAMIC_HINT, 2, 16, aot_mode=True))
        report["no_options"], report["no_options_warnings"] = with_warnings(
            lambda: choose(static[0], options={}), times=2
        )
        for key, package, instead in (
            ("missing", "nvidia-cutlass-dsl", None),
            ("other", "apache-tvm-ffi", "0.0.1"),
        ):
            with patch.object(binary, "version", versions_without(package, instead)):
                installed(key)
                if instead:
                    installed("other ignored", policy="ignore")
    with patch.object(binaries, "link", lambda kernel, device: "cannot be linked: OSError: no libcuda"):
        installed("unlinked")
    with (
        patch.object(binaries, "registered", wraps=binaries.registered) as registered,
        patch.object(cute_object, "load", return_value=print) as linked,
    ):
        for key, allowed in (("without binaries", False), ("with binaries", True)):
            installed(key, binaries=allowed)
            report[key]["reached"] = [registered.called, linked.called]
    kernels = gemmtune_inductor._read(None).rows
    by_case = {
        case["name"]: row.kernel
        for case in static
        for rows in kernels.values()
        for row in rows
        if row.first == case["m"] == row.last
    }
    report["unaligned"], report["unaligned_warnings"] = with_warnings(
        lambda: {case["name"]: called(by_case[case["name"]], case, 1) for case in static}
    )
    gemmtune_inductor.uninstall()
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1], json.loads(sys.argv[2]))
