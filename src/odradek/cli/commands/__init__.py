"""One module for each command: `configure(parser)` declares its options, `run(arguments)` does it."""
