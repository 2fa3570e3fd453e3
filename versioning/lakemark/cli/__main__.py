"""`python -m lakemark.cli` is `lakemark`, where a unit or a test names its Python instead of a program."""

from lakemark.cli import main

main()
