"""`python -m glassbert` is `glassbert`."""

from glassbert.cli import main

main()
