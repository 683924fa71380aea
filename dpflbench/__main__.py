"""`python -m dpflbench`."""

from dpflbench.cli import main

main()
