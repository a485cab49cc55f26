"""`python -m residuum`."""

from residuum.cli import main

main()
