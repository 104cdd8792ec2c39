"""The lessons: marimo notebooks, each a Python file that also runs as a script."""
