"""dpflbench from Python: what `import dpflbench as db` offers, and what the command line is a thin layer over."""
