"""CuTe kernels: operator classes, rules, building, files and launching."""
