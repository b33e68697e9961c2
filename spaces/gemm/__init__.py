"""GEMMs: the kind of workload, registered under the entry points `gemmtune.workloads`."""
