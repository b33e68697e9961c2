"""Exporters of tables as the tuned files that vLLM and SGLang load."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from gemmtune.engine.consumers.serving.contract.file_name import Engine, Kernel
from gemmtune.engine.consumers.serving.entries import FileEntries, entries_by_file
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.table import Table
from gemmtune.engine.seams.exporter import Exporter

_GAINS = "gains.json"
_LINEAR_FOLDER = "linear_configs"
"""Folder for the files of linear layers, which are loaded from the engine's package alone."""
_TILE = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1}
_EXAMPLE = Config({**_TILE, "num_warps": 4, "num_stages": 3})
_ORDER = (*_TILE, "num_warps", "num_stages", "SWAP_AB", "SPLIT_K")
"""Order of an entry's keys, as in the engines' own files."""
_PLAIN = {"SWAP_AB": False, "SPLIT_K": 1}
"""Values with which SGLang runs its kernel without these arguments, and fails if a file names them."""


class _ServingExporter(Exporter):
    engine: ClassVar[Engine]
    """Engine that loads the files."""
    note: ClassVar[str]
    """Sentence that says where the files go."""

    def export(self, table: Table) -> Mapping[str, str]:
        """Return the tuned files, and `gains.json`, which says what each entry gains.

        Raises:
            TableError: a row is of another engine's layer, or rows of one file cannot share an entry.
        """
        files = entries_by_file(table, self.engine, self.spaces)
        written = {self._path(file): self._text(file) for file in files}
        return {**written, _GAINS: _gains(table, files, self._path, self.note)}

    def _path(self, file: FileEntries) -> str:
        return f"{_LINEAR_FOLDER}/{file.name.text}" if file.name.kernel is Kernel.LINEAR else file.name.text

    def _text(self, file: FileEntries) -> str:
        """Return the file's JSON. Every key but vLLM's `triton_version` is a token count."""
        has_version = file.triton and (file.name.engine, file.name.kernel) == (Engine.VLLM, Kernel.MOE)
        content: dict[str, object] = {"triton_version": file.triton} if has_version else {}
        content |= {str(entry.tokens): {**_arguments(entry.config), **file.constants} for entry in file.entries}
        return json.dumps(content, indent=4) + "\n"


class VllmExporter(_ServingExporter):
    """Writer of files for vLLM: set VLLM_TUNED_CONFIG_FOLDER to their folder.

    The files of block-fp8 linear layers go to `linear_configs`; vLLM loads those from its package alone.
    """

    engine = Engine.VLLM
    workloads = ("vllm_moe", "vllm_moe_wna16", "vllm_block_fp8")
    spaces = tuple(name for kind in workloads for name in (kind, f"{kind}_shipped"))
    example = ("vllm_moe", _EXAMPLE)
    example_problems = tuple(f"vllm_moe:m{m}:e8:k2:h4096:n1792:bf16" for m in (1, 64, 4096))
    note = (
        "vLLM loads E=*.json from the folder that VLLM_TUNED_CONFIG_FOLDER names. Copy linear_configs/*.json into "
        "vllm/model_executor/layers/quantization/utils/configs of the installed package."
    )


class SglangExporter(_ServingExporter):
    """Writer of files for SGLang: set SGLANG_MOE_CONFIG_DIR to their folder.

    The files of block-fp8 linear layers go to `linear_configs`; SGLang loads those from its package alone.
    """

    engine = Engine.SGLANG
    workloads = ("sglang_moe", "sglang_moe_wna16", "sglang_block_fp8")
    spaces = tuple(name for kind in workloads for name in (kind, f"{kind}_shipped"))
    example = ("sglang_moe", _EXAMPLE)
    example_problems = tuple(f"sglang_moe:m{m}:e8:k2:h4096:n1792:bf16" for m in (1, 64, 4096))
    note = (
        "SGLang loads configs/triton_*/E=*.json from the folder that SGLANG_MOE_CONFIG_DIR names. Copy "
        "linear_configs/*.json into sglang/kernels/ops/gemm/configs of the installed package."
    )

    def _path(self, file: FileEntries) -> str:
        if file.name.kernel is Kernel.LINEAR:
            return super()._path(file)
        if not file.triton:
            raise TableError(
                f"{file.name.text} needs a folder per version of Triton, and no row states one: tune on a GPU"
            )
        return f"configs/triton_{file.triton.replace('.', '_')}/{file.name.text}"


def _arguments(config: Config) -> dict[str, object]:
    """Return the keyword arguments of the kernel, in the engines' order."""
    plain = all(config.get(name, value) == value for name, value in _PLAIN.items())
    return {name: config[name] for name in _ORDER if name in config and not (plain and name in _PLAIN)}


def _gains(table: Table, files: Sequence[FileEntries], path: Callable[[FileEntries], str], note: str) -> str:
    """Return what each entry gains over what the engine runs now, as JSON."""
    content = {
        "device": table.device.name,
        "note": note,
        "measured_at": table.measured_at,
        "files": {
            path(file): {
                str(entry.tokens): {
                    "gain_over_deployed": {name: round(gain, 4) for name, gain in entry.gains},
                    **({"worst_loss": round(entry.worst_loss, 4)} if entry.worst_loss else {}),
                }
                for entry in file.entries
            }
            for file in files
        },
    }
    return json.dumps(content, indent=2) + "\n"
