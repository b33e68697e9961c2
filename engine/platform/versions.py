"""Read installed versions from package metadata, without importing the packages."""

from importlib.metadata import PackageNotFoundError, version

from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.errors import ToolchainMissing

__all__ = ["toolchain_of"]


def toolchain_of(*packages: str, extra: str = "triton") -> Toolchain:
    """Return the installed versions of `packages`, which gemmtune's `extra` installs.

    Raises:
        ToolchainMissing: one of them is not installed.
    """
    try:
        return Toolchain(tuple(sorted((package, version(package)) for package in packages)))
    except PackageNotFoundError as missing:
        raise ToolchainMissing(f"{missing.name} is not installed: pip install 'gemmtune[{extra}]'") from None
