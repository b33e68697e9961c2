"""What a plug-in implements, one short contract a file, and the registry that finds plug-ins by name."""
