"""The commands of `mx-opt`, one module each: `run(arguments)` returns the exit status."""
