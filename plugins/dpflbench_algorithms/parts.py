"""Parts that several papers share."""
