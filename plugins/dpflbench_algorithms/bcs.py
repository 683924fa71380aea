"""DPFL-BCS."""
