"""Run a campaign: plan, backend, search, finals, ranges, table."""
