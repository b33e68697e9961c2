"""Child processes with deadlines that restart after a crash."""
