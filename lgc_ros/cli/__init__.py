"""The `lgc` command: one module per command group; parse, call, print."""
