"""Errors that gemmtune raises on purpose.

An expected failure of a candidate (a failed build, a wrong result, a hang) is never an exception: it is a Measurement
with that status.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class GemmtuneError(Exception):
    """Base class of every error that gemmtune raises on purpose."""


class UsageError(GemmtuneError):
    """The caller's input is wrong; the CLI prints the line with value, bound and way out, and exits with status 2."""


class UnknownPlugin(UsageError):  # noqa: N818 -- the name says what is wrong
    """No plug-in of that name is registered."""


class ProblemError(UsageError):
    """A problem's text or fields are malformed or out of bounds."""


class UnknownDefinition(ProblemError):  # noqa: N818 -- the name says what is wrong
    """The user's code that describes a workload was not read in this process, which may know the workload by name."""


class DeviceError(UsageError):
    """A device is unknown, or a record was made for another one."""


class LandscapeError(UsageError):
    """A landscape file is malformed."""


class TableError(UsageError):
    """A table file is malformed, damaged, or of another schema."""


class StoreError(UsageError):
    """A database cannot be opened, or is of another schema."""


class ContractError(GemmtuneError):
    """A plug-in broke the contract of its seam; the message names the plug-in."""


class ToolchainMissing(GemmtuneError):  # noqa: N818 -- the name says what is wrong
    """A needed optional package is not installed; the message names the extra to install."""


class Stopped(BaseException):
    """A signal that ends the command; not an Exception, so that no handler takes it for a failure of a job."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = number
        """Number of the signal."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the question for a message, `did you mean budget? `; empty where no known name is near.

    Neither case nor `-` and `_` count.
    """
    of_folded = {_folded(each): each for each in known}
    near = get_close_matches(_folded(name)[:100], of_folded, 1)
    return f"did you mean {of_folded[near[0]]}? " if near else ""


def _folded(name: str) -> str:
    return name.casefold().replace("-", "_")
