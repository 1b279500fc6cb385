"""`python -m colonnade`: the command, wherever the package is."""

from colonnade.cli import main

if __name__ == "__main__":
    main()
