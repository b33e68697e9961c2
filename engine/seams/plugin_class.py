"""Take a plug-in from a file or a module, or as a class, without installing a package."""

import sys
from pathlib import Path

from gemmtune.engine.io.importing import imported
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.seams.sampler_options import sampler, sampler_called


def class_named(kind: type, text: str, folder: Path) -> str | type:
    """Return a registered plug-in's name, or the class that `./file.py:Class` or `module:Class` names.

    Args:
        kind: seam of the plug-in, for example `Sampler`.
        text: the name, or where the class is; of a sampler, perhaps with options: `evolution(children=64)`.
        folder: folder that a file's path starts from, and where modules are found.

    Raises:
        UsageError: the file or module cannot be imported, or the class is of another seam.
    """
    if kind is Sampler:
        text, options = sampler_called(text)
        if options:
            return sampler(class_named(kind, text, folder), **options)
    where, colon, name = text.rpartition(":")
    if not colon:
        return text
    is_file = where.endswith(".py")
    path = folder / where
    if is_file and not path.is_file():
        raise UsageError(f"no file {where} to take {kind.__name__.lower()} {name} from")
    found_in = str((path.parent if is_file else folder).resolve())
    if found_in not in sys.path:
        sys.path.insert(0, found_in)
    found = imported(f"{path.stem if is_file else where}:{name}", text)
    if not (isinstance(found, type) and issubclass(found, kind)):
        raise UsageError(f"{text} is not a subclass of gemmtune.{kind.__name__}")
    return found


def adopted(kind: type, given: str | type, folder: Path = Path()) -> str:
    """Return the name of a plug-in; a class, or what names one, goes by its own name in this process from now on.

    Raises:
        UsageError: as `class_named` and `registry.adopt`.
    """
    found = class_named(kind, given, folder) if isinstance(given, str) else given
    return found if isinstance(found, str) else registry.adopt(kind, found)
