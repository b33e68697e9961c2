"""Requests for room that a cluster does not have: an autoscaler adds nodes for them."""

from typing import Any

import ray


class Demand:
    """Requests for cores or GPUs on any node.

    Actors are pinned to nodes that are there, of which an autoscaler learns nothing. A request is a task that does
    nothing, and waits until some node has room for it.
    """

    def __init__(self, cpus: float, gpus: float, accelerator: str = "") -> None:
        """Request nothing yet.

        Args:
            cpus: cores of a request.
            gpus: GPUs of a request.
            accelerator: Ray's label of the GPUs' kind; empty for any.
        """
        labels = {"label_selector": {"ray.io/accelerator-type": accelerator}} if accelerator else {}
        self._request = ray.remote(_nothing).options(num_cpus=cpus, num_gpus=gpus, max_retries=0, **labels)
        self._open: list[Any] = []

    def update(self, number: int) -> None:
        """Keep this many requests open: add to those that were not granted, or withdraw the last of them."""
        if self._open:
            self._open = ray.wait(self._open, num_returns=len(self._open), timeout=0)[1]
        for request in self._open[number:]:
            ray.cancel(request)
        self._open = self._open[:number]
        self._open += [self._request.remote() for _ in range(number - len(self._open))]


def _nothing() -> None:
    """Return: there was room."""
