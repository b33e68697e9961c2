"""Check the results of CUDA driver calls. Needs cuda-bindings."""

from typing import Any

from cuda.bindings import driver

__all__ = ["checked"]


def checked(result: tuple[Any, ...]) -> Any:  # noqa: ANN401 (cuda.bindings has no types)
    """Return the value of a driver call, or None if it has none.

    Raises:
        RuntimeError: the call failed; the message is the driver's name of the error.
    """
    status, *values = result
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"CUDA driver: {status.name if isinstance(status, driver.CUresult) else status}")
    return values[0] if values else None
