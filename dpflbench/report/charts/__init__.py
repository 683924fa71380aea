"""Charts of a report: described once (chart.py), drawn once (draw.py), the same drawing on the page and in files."""
