"""A cluster with GPUs of some models, of which nothing runs."""

from __future__ import annotations

from gemmtune.engine.execution.hosts import Hosts


class FakeCluster:
    """Cluster with GPUs of some models."""

    def __init__(self, *devices):
        self.found, self.closed = list(devices), False

    def devices(self, wanted=None):
        return self.found

    def close(self):
        self.closed = True


def hosts_of(cluster):
    """Return the hosts of a cluster; None for this machine's."""
    hosts = Hosts()
    hosts.cluster = cluster
    return hosts
