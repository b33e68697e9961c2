"""Who does what when: one task, many tasks, the processes that work for them."""
