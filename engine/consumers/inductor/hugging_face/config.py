"""Configurations of transformers by name: of a folder, of the local cache, or of the hub. Imports transformers."""

import socket
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit
from urllib.request import getproxies

import transformers

from gemmtune.engine.consumers.inductor.hugging_face.settings import PREFIX
from gemmtune.engine.records.errors import UsageError

Config: TypeAlias = Any
"""transformers' configuration, whose attributes differ from model to model."""

_PATHS = ("./", "../", "/", "~")


def find_config(name: str) -> Config:
    """Return the configuration of a model; of a hub's model only config.json is read, never its weights.

    Args:
        name: `hf:` and a folder with config.json, or a model's name on the hub, ORGANISATION/MODEL.

    Raises:
        UsageError: there is no such folder or model, its configuration is damaged or needs code of its own, or the
            model is in no local cache and the hub cannot be reached.
    """
    place = name.removeprefix(PREFIX)
    folder = Path(place).expanduser()
    if place.startswith(_PATHS) or folder.is_dir():
        if not (folder / "config.json").is_file():
            raise UsageError(f"{name}: there is no {folder}/config.json; name a folder with the model's configuration")
        return _read(name, str(folder), is_local=True)
    if not all(place.split("/")) or place.count("/") > 1:
        raise UsageError(f"malformed model {name!r}: write hf:Qwen/Qwen3-0.6B, or hf:./folder with a config.json")
    try:
        return _read(name, place, is_local=True)
    except UsageError:
        if (reason := _why_unreachable()) or transformers.utils.hub.is_offline_mode():
            way = "name a folder with its config.json, hf:./folder"
            raise UsageError(
                f"{name} is not in the local cache, and the hub is not asked ({reason or 'HF_HUB_OFFLINE'}): {way}"
            ) from None
    return _read(name, place, is_local=False)


def _read(name: str, place: str, *, is_local: bool) -> Config:
    logger = transformers.utils.logging
    before = logger.get_verbosity()
    logger.set_verbosity_error()
    try:
        return transformers.AutoConfig.from_pretrained(place, local_files_only=is_local, trust_remote_code=False)
    except Exception as error:  # a configuration's own
        line = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise UsageError(f"{name}: {line[:300]}") from error
    finally:
        logger.set_verbosity(before)


def _why_unreachable() -> str:
    """Return why the hub has no address here; empty where it has one, or where a proxy would know."""
    import huggingface_hub

    host = urlsplit(huggingface_hub.constants.ENDPOINT).hostname or ""
    if getproxies():
        return ""
    try:
        socket.getaddrinfo(host, None)
    except OSError as error:
        return f"{host}: {error.strerror or error}"
    return ""
