"""`python -m colonnade`: the command, wherever the package is."""

from colonnade.cli import main

main()
