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
_FOLDER = "_inductor/kernel"
_FILES = {
    "triton::mm": ("templates/triton_mm",),
    "triton::bmm": ("templates/triton_bmm",),
    "flex::forward": ("flex/templates/flex_attention", "flex/templates/utilities", "flex/templates/common"),
    "flex::backward": ("flex/templates/flex_backwards", "flex/templates/utilities"),
    "flex::decode": ("flex/templates/flex_decode", "flex/templates/utilities", "flex/templates/common"),
}
# SHA-256 of each template's files together, by the first version of torch that has them.
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
    "flex::forward": {
        "2.11": "3d52405d3af2181b6d234a075a63f6673f0c9df8feca0bbea7bdc23bc62213e2",
        "2.12": "34fcdcb5afbcba6ae50c5e3c3a49a14a896de3d9f11eca445bb168b3e29fcdfc",
        "2.13": "8e3d71fa06af9307d2a913b4325684d8149704c0adc748f42b45ce1a60a5d316",
        "2.14": "c7b97ce371e48232fd4033b14165155efbc4dbb474c7dc952591da5261c9233b",
        "2.15": "fff957ae1948a30d051224fd23a042d8b1a0617261b735997ab0964e1ec9bbae",
    },
    "flex::backward": {
        "2.11": "fc2d51f08dffc3f188aaf2e262e058e72292928bb233c4d84abebf20fca3fc4e",
        "2.12": "0a88ac0f39298a6acdff1ecb95aa0d73823358de5a59dbdba9cbfbb0c575cc19",
        "2.13": "71a9e4c04e5a451abb976cc5a1f537b3bc051d2fdd5c1f91d8b25169f7b82119",
        "2.14": "da0e8a5ab7cc29d3cadd0027ca1cb0165559e9e1643ad54a701adc0434d6802e",
    },
    "flex::decode": {
        "2.11": "e63085abeb7ab0e6b85b142dc7e8e3bba5a24b7629e65b65238a9646007bb2c0",
        "2.13": "92e7b044bd013c0144d9f78e8480568f36c2eb5650a67b2c6832e2bb9c5a6120",
        "2.14": "d29f5201ec5480dee40dd0f2ba235fb2a833bbc9c95dcb0717cda0d9bf689501",
        "2.15": "e184a93398d28c13a2f6b19066687fce62bc3450cb503faf06e90f535516a137",
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
    files = _installed_sources(template, torch)
    if files:
        return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    if release_of(torch) not in TORCH_VERSIONS:
        return None
    until = TORCH_VERSIONS[: TORCH_VERSIONS.index(release_of(torch)) + 1]
    return [its for since, its in _SOURCES[template].items() if since in until][-1]


def fp_fusion(environment: Mapping[str, str]) -> bool:
    """Return whether Triton is to fuse multiplications and additions under these environment variables."""
    fuses = environment.get(FP_FUSION_VARIABLE, "1").lower() in _TRUE
    return fuses and environment.get(_NO_FUSION_VARIABLE, "").lower() not in _TRUE


def _installed_sources(template: str, torch: str) -> list[Path]:
    """Return the files of a template's source in the installed torch; none if that has not the given version."""
    found = find_spec("torch")  # does not import it
    if found is None or found.origin is None or installed_torch() != torch.partition("+")[0]:
        return []
    folder = Path(found.origin).parent / _FOLDER
    files = [folder / f"{name}.py.jinja" for name in _FILES[template]]
    return files if all(file.is_file() for file in files) else []
