"""Hash of the source of a Triton kernel and of the kernels it calls. Needs the standard library alone."""

import hashlib
import inspect
import textwrap
from typing import Any


def python_function(kernel: Any) -> Any:  # noqa: ANN401 (Triton has no types)
    """Return the Python function below decorators such as `triton.jit` and `triton.autotune`; None below none."""
    while not inspect.isfunction(kernel) and hasattr(kernel, "fn"):
        kernel = kernel.fn
    return kernel if inspect.isfunction(kernel) else None


def source_sha256(kernel: Any) -> str:  # noqa: ANN401 (Triton has no types)
    """Return the SHA-256 of the source of a kernel, without decorators, and of the decorated functions it names."""
    texts: dict[str, str] = {}
    waiting = [python_function(kernel)]
    while waiting:
        function = waiting.pop()
        if function.__qualname__ not in texts:
            source = textwrap.dedent(inspect.getsource(function))
            texts[function.__qualname__] = source[source.index("def ") :].strip()
            named = (function.__globals__.get(name) for name in function.__code__.co_names)
            called = (python_function(each) for each in named if not inspect.isfunction(each))
            waiting += [each for each in called if each is not None and each.__module__ == function.__module__]
    return hashlib.sha256("\n".join(texts[name] for name in sorted(texts)).encode()).hexdigest()
