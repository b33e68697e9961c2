"""Workloads of serving engines: fused mixture-of-experts layers, and linear layers with scales per block."""
