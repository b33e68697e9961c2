"""Versions that a binary of an engine's kernel depends on."""

from __future__ import annotations

import os

from gemmtune.engine.platform.ptxas import current_ptxas, ptxas_release, triton_ptxas
from gemmtune.engine.platform.releases import fp_fusion
from gemmtune.engine.platform.serving.file_name import Engine
from gemmtune.engine.platform.versions import toolchain_of
from gemmtune.engine.records.artifact import Toolchain
from gemmtune.spaces.serving.shipped import engine_source

__all__ = ["engine_toolchain"]

_DIGITS = 12


def engine_toolchain(engine: Engine, source_sha256: str) -> Toolchain:
    """Return the versions of the engine and of Triton, the hash of the kernel's source, and what changes binaries."""
    versions = list(toolchain_of("triton").versions)
    versions += [(engine.value, engine_source(engine).version), (f"{engine.value}_kernel", source_sha256[:_DIGITS])]
    ptxas = current_ptxas()
    if ptxas is not None and ptxas != triton_ptxas():
        versions.append(("ptxas", ptxas_release(ptxas)))
    if not fp_fusion(os.environ):
        versions.append(("fp_fusion", "off"))
    return Toolchain(tuple(sorted(versions)))
