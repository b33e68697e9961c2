"""Kinds of workloads: one public file per kind, registered under the entry points `gemmtune.workloads`."""
