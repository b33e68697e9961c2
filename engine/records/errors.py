"""The errors gemmtune raises on purpose.

    GemmtuneError                 every error below
    ├── UsageError                the caller gave something wrong; the CLI prints it and exits with status 2
    │   ├── UnknownPlugin         no plug-in of that name
    │   ├── ProblemError          a problem's text or fields are malformed or out of bounds
    │   ├── DeviceError           a device is unknown, or a record was made for another one
    │   ├── LandscapeError        a landscape file is malformed
    │   ├── TableError            a table file is malformed, damaged, or of another schema
    │   └── StoreError            a database cannot be opened, or is of another schema
    ├── ContractError             a plug-in broke the contract of its seam; the message names the plug-in
    ├── ToolchainMissing          an optional package is needed and absent; the message names the extra to install
    └── process.Quarantined       (in measure/) no worker starts any more: a GPU is lost; what was measured is kept

An expected failure of a candidate (it does not build, it is wrong, it hangs) is never an exception: it is a
Measurement whose status says so.
"""

from __future__ import annotations

__all__ = [
    "ContractError",
    "DeviceError",
    "GemmtuneError",
    "LandscapeError",
    "ProblemError",
    "StoreError",
    "TableError",
    "ToolchainMissing",
    "UnknownPlugin",
    "UsageError",
]


class GemmtuneError(Exception):
    """Every error gemmtune raises on purpose."""


class UsageError(GemmtuneError):
    """The caller gave something wrong; one line that names the value, the bound and the way out."""


class UnknownPlugin(UsageError):  # noqa: N818 -- the name says what is wrong
    """No plug-in of that name is registered."""


class ProblemError(UsageError):
    """A problem's text or fields are malformed or out of bounds."""


class DeviceError(UsageError):
    """A device is unknown, or a record was made for another one."""


class LandscapeError(UsageError):
    """A landscape file is malformed."""


class TableError(UsageError):
    """A table file is malformed, damaged, or of another schema."""


class StoreError(UsageError):
    """A database cannot be opened, or is of another schema."""


class ContractError(GemmtuneError):
    """A plug-in broke the contract of its seam."""


class ToolchainMissing(GemmtuneError):  # noqa: N818 -- the name says what is wrong
    """An optional package is needed and absent."""
