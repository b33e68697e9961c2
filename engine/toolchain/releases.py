"""Facts that differ between releases of torch and Triton; no other module asks for a version."""

import hashlib
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

TORCH_VERSIONS = ("2.11", "2.12", "2.13", "2.14", "2.15")
"""Versions of torch whose guards and template sources are known without asking it."""
PADDING_GUARDS = ("2.11",)
"""Versions of torch whose padding pass guards sizes of m."""
FP_FUSION_VARIABLE = "TRITON_DEFAULT_FP_FUSION"
"""Variable that lets Triton fuse multiplications and additions; without it Triton 3.9 fuses and 3.10 does not."""

_NO_FUSION_VARIABLE = "TRITON_FORCE_DISABLE_FP_FUSION"
_TRUE = {"1", "true", "yes", "on", "y"}  # env_bool in triton/knobs.py
_FOLDER = "_inductor/kernel/templates"
_FILES = {
    "triton::mm": "triton_mm.py.jinja",
    "triton::bmm": "triton_bmm.py.jinja",
}
# SHA-256 of each file, by the first version of torch that has it.
_SOURCES = {
    "triton::mm": {
        "2.11": "d4b90a54b960e7b3fb3abb24be0d43fc9b3c4d64c53ecd44187508e096498238",
        "2.12": "d99842e466803e2d1dcd19b8faa992acd26dc9cb671b8eba7468c187f3b9007f",
    },
    "triton::bmm": {
        "2.11": "1635ad519a2790c283e0cd308d03f44e1673a8289810f371093fbdcba6ec4f6a",
        "2.12": "b66e027a389f827da63480cacf9fec1a513db71cf09df7ab609dff639d935f89",
        "2.13": "4acd70184f4e6d7dd871c00a5b945a6a4d3acd641ad6f7f1a3eb6902ab4cf85c",
        "2.15": "3027d8e7e1fd500c84dfddcebe374297602fe6769225603d96a27d29b24bd5e7",
    },
}


def installed_torch() -> str:
    """Return the version of the installed torch without a suffix for CUDA, `2.11.0`; empty without torch."""
    try:
        return version("torch").partition("+")[0]
    except PackageNotFoundError:
        return ""


def release_of(torch: str) -> str:
    """Return major and minor version of torch."""
    return ".".join(torch.split(".")[:2])


def source_hash(template: str, torch: str) -> str | None:
    """Return the SHA-256 of a template's source in a version of torch such as `2.11.0+cu130`; None if unknown.

    The installed torch is read if it has that version. Other versions are known if TORCH_VERSIONS has them.
    """
    if template not in _FILES:
        return None
    file = _installed_source(template, torch)
    if file is not None:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    if release_of(torch) not in TORCH_VERSIONS:
        return None
    until = TORCH_VERSIONS[: TORCH_VERSIONS.index(release_of(torch)) + 1]
    return [its for since, its in _SOURCES[template].items() if since in until][-1]


def fp_fusion(environment: Mapping[str, str]) -> bool:
    """Return whether Triton is to fuse multiplications and additions under these environment variables."""
    fuses = environment.get(FP_FUSION_VARIABLE, "1").lower() in _TRUE
    return fuses and environment.get(_NO_FUSION_VARIABLE, "").lower() not in _TRUE


def _installed_source(template: str, torch: str) -> Path | None:
    """Return the file of a template's source in the installed torch if that has the given version."""
    found = find_spec("torch")  # does not import it
    if found is None or found.origin is None or installed_torch() != torch.partition("+")[0]:
        return None
    file = Path(found.origin).parent / _FOLDER / _FILES[template]
    return file if file.is_file() else None
