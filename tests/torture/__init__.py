"""The crash and fuzz bench: `make torture`, or `python -m tests.torture --quick`."""
