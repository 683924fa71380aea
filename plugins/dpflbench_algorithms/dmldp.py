"""DMLDP."""
