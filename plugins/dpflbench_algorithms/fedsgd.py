"""FedSGD."""
