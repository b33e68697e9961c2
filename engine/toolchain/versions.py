"""Read installed versions from package metadata, without importing the packages."""

import os
from importlib.metadata import PackageNotFoundError, version

from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.errors import ToolchainMissing
from gemmtune.engine.toolchain.installed import install_command
from gemmtune.engine.toolchain.ptxas import current_ptxas, ptxas_release, triton_ptxas
from gemmtune.engine.toolchain.releases import fp_fusion


def toolchain_of(*packages: str, extra: str = "triton") -> Toolchain:
    """Return the installed versions of `packages` of an `extra`; raises ToolchainMissing if one is not installed."""
    try:
        return Toolchain(tuple(sorted((package, version(package)) for package in packages)))
    except PackageNotFoundError as missing:
        raise ToolchainMissing(f"{missing.name} is not installed: {install_command(extra)}") from None


def triton_toolchain(*packages: str) -> Toolchain:
    """Return the versions of Triton and of `packages`, and what changes Triton's kernels in this process.

    These are a ptxas other than Triton's own, and Triton's setting not to fuse multiplications and additions.

    Raises:
        ToolchainMissing: one of the packages is not installed.
    """
    versions = list(toolchain_of("triton", *packages).versions)
    ptxas = current_ptxas()
    if ptxas is not None and ptxas != triton_ptxas():
        versions.append(("ptxas", ptxas_release(ptxas)))
    if not fp_fusion(os.environ):
        versions.append(("fp_fusion", "off"))
    return Toolchain(tuple(sorted(versions)))
