"""Kernels, defaults and tuned files of an engine, taken from its source without importing it."""

import ast
import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, distributions
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gemmtune.engine.consumers.serving.contract.file_name import Engine, FileName, Kernel, version_numbers
from gemmtune.engine.consumers.serving.contract.tuned_file import TunedFile, parse_file
from gemmtune.engine.records.errors import ToolchainMissing, UsageError

_FOLDER_VARIABLE = {Engine.VLLM: "GEMMTUNE_VLLM", Engine.SGLANG: "GEMMTUNE_SGLANG"}
"""Variable that names a folder with an engine's package, in place of an installed one."""
_VLLM_LAYERS = "vllm/model_executor/layers"
_SGLANG_MOE = "sglang/srt/layers/moe/moe_runner/triton_utils"
_KERNELS = {
    (Engine.VLLM, Kernel.MOE): f"{_VLLM_LAYERS}/fused_moe/fused_moe.py",
    (Engine.VLLM, Kernel.LINEAR): f"{_VLLM_LAYERS}/quantization/utils/fp8_utils.py",
    (Engine.SGLANG, Kernel.MOE): "sglang/kernels/ops/moe/fused_moe_triton_kernels.py",
    (Engine.SGLANG, Kernel.LINEAR): "sglang/kernels/ops/gemm/fp8_kernel.py",
}
"""File of each kernel in vLLM 0.33 and SGLang 0.5.23."""
_DEFAULTS = {
    Engine.VLLM: f"{_VLLM_LAYERS}/fused_moe/fused_moe.py",
    Engine.SGLANG: f"{_SGLANG_MOE}/fused_moe_triton_config.py",
}
"""File of `get_default_config`, which chooses the config of a MoE layer without a tuned file."""
_TUNED = {
    (Engine.VLLM, Kernel.MOE): f"{_VLLM_LAYERS}/fused_moe/configs",
    (Engine.VLLM, Kernel.LINEAR): f"{_VLLM_LAYERS}/quantization/utils/configs",
    (Engine.SGLANG, Kernel.MOE): f"{_SGLANG_MOE}/configs",
    (Engine.SGLANG, Kernel.LINEAR): "sglang/kernels/ops/gemm/configs",
}
"""Folder of the tuned files."""
_ASKED = "should_moe_wna16_use_cuda"
"""Function that vLLM's `get_default_config` asks which kernel runs integer weights with a scale per group."""
_LOW_SHARED_BYTES = 128 * 1024
"""Shared memory per block below which SGLang has defaults of its own."""
_HEADER = "import triton\nimport triton.language as tl\n"


@dataclass(frozen=True, slots=True)
class EngineSource:
    """One engine's package on this host."""

    engine: Engine
    """Engine of the package."""
    root: Path
    """Folder that holds the package's folder."""
    version: str
    """Version of the package; `unknown` without metadata."""

    def kernel_file(self, kernel: Kernel) -> Path:
        """Return the file with a kernel's source."""
        return self._file(_KERNELS[self.engine, kernel])

    def default_moe_config(self, *arguments: object, shared_bytes: int) -> dict[str, Any]:
        """Return what the engine's `get_default_config` answers to these arguments outside deterministic modes."""
        file = self._file(_DEFAULTS[self.engine])
        return dict(_default_function(file, shared_bytes < _LOW_SHARED_BYTES)(*arguments))

    def tuned_file(self, name: FileName, triton: str) -> TunedFile | None:
        """Return the shipped file that the engine loads for this name with this version of Triton; None without one."""
        folder = self.root / _TUNED[self.engine, name.kernel]
        candidates = [folder / name.text]
        if (self.engine, name.kernel) == (Engine.SGLANG, Kernel.MOE):
            versions = sorted(
                (version_numbers(path.name) for path in folder.glob("triton_*") if path.is_dir()), reverse=True
            )
            wanted = version_numbers(triton.partition("+")[0])
            order = [wanted, *(version for version in versions if version != wanted)]
            candidates = [folder / f"triton_{'_'.join(map(str, version))}" / name.text for version in order]
        found = next((path for path in candidates if path.is_file()), None)
        if found is None:
            return None
        return parse_file(str(found.relative_to(self.root)), name, found.read_bytes())

    def _file(self, relative: str) -> Path:
        path = self.root / relative
        if not path.is_file():
            raise UsageError(
                f"{self.engine} {self.version} in {self.root} has no {relative}; gemmtune knows the layout of vllm "
                "0.33 and sglang 0.5.23"
            )
        return path


def find_engine(engine: Engine, environment: Mapping[str, str]) -> EngineSource:
    """Return the engine's package: in the folder that a variable names, else the installed one.

    Raises:
        ToolchainMissing: neither is there; the message names the ways to get one.
    """
    variable = _FOLDER_VARIABLE[engine]
    if folder := environment.get(variable):
        root = Path(folder)
        if not (root / engine.value).is_dir():
            raise ToolchainMissing(f"{variable}={folder} has no folder {engine.value}; name the folder that holds it")
        found = next(iter(distributions(name=engine.value, path=[folder])), None)
        return EngineSource(engine, root, found.version if found else "unknown")
    try:
        installed = distribution(engine.value)
    except PackageNotFoundError:
        raise ToolchainMissing(
            f"{engine.value} is not installed: pip install --no-deps {engine.value}, or unpack its wheel and set "
            f"{variable} to that folder"
        ) from None
    return EngineSource(engine, Path(str(installed.locate_file(""))), installed.version)


@cache
def kernel_text(path: Path, names: tuple[str, ...]) -> tuple[str, str]:
    """Return a module with these functions of a file, decorators included, and its SHA-256.

    Raises:
        UsageError: the file is no Python, or lacks one of them.
    """
    text = path.read_text(encoding="utf-8")
    functions = _functions(path, text, names)
    lines = text.splitlines()
    parts = []
    for function in functions:
        first = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])
        parts.append("\n".join(lines[first - 1 : function.end_lineno]))
    module = "\n\n".join([_HEADER, *parts]) + "\n"
    return module, hashlib.sha256(module.encode()).hexdigest()


@cache
def _default_function(path: Path, low_shared: bool) -> Callable[..., Mapping[str, Any]]:
    """Return the engine's `get_default_config`, with stand-ins for what it asks of the running engine."""
    text = path.read_text(encoding="utf-8")
    functions = _functions(path, text, ("get_default_config", *((_ASKED,) if f"def {_ASKED}(" in text else ())))
    for function in functions:
        function.returns = None
        for argument in function.args.args:
            argument.annotation = None
    module = ast.Module(body=list(functions), type_ignores=[])
    off = SimpleNamespace(enable_deterministic_inference=False)
    names: dict[str, Any] = {
        "envs": SimpleNamespace(VLLM_BATCH_INVARIANT=False),
        "current_platform": SimpleNamespace(is_rocm=lambda: False, is_cuda=lambda: True),
        "next_power_of_2": lambda number: 1 << (number - 1).bit_length(),
        "get_exec": lambda: SimpleNamespace(deterministic=off),
        "_is_hip": False,
        "_use_low_smem_fp8_default": lambda: low_shared,
    }
    exec(compile(module, str(path), "exec"), names)  # noqa: S102 (the installed engine's own function)
    found: Callable[..., Mapping[str, Any]] = names["get_default_config"]
    return found


def _functions(path: Path, text: str, names: Collection[str]) -> list[ast.FunctionDef]:
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise UsageError(f"{path} is no Python: {error}") from None
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in names]
    if missing := sorted(set(names) - {node.name for node in found}):
        raise UsageError(f"{path} has no function {missing[0]}; gemmtune knows vllm 0.33 and sglang 0.5.23")
    return found
