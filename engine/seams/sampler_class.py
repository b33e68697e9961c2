"""Take a sampler from a file or a module, without installing a package."""

import sys
from pathlib import Path

from gemmtune.engine.io.importing import imported
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.seams.sampler import Sampler


def sampler_named(text: str, folder: Path) -> str | type[Sampler]:
    """Return a registered sampler's name, or the class that `./file.py:Class` or `module:Class` names.

    Args:
        text: the name, or where the class is.
        folder: folder that a file's path starts from, and where modules are found.

    Raises:
        UsageError: the file or module cannot be imported, or the class is no sampler.
    """
    where, colon, name = text.rpartition(":")
    if not colon:
        return text
    is_file = where.endswith(".py")
    path = folder / where
    if is_file and not path.is_file():
        raise UsageError(f"no file {where} to take sampler {name} from")
    found_in = str((path.parent if is_file else folder).resolve())
    if found_in not in sys.path:
        sys.path.insert(0, found_in)
    found = imported(f"{path.stem if is_file else where}:{name}", text)
    if not (isinstance(found, type) and issubclass(found, Sampler)):
        raise UsageError(f"{text} is not a subclass of gemmtune.Sampler")
    return found
