"""Data that travels with the package: MNIST, with its provenance in `mnist.md` and the script that made the file."""
