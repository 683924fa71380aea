"""IDP-clipping."""
