"""What it costs: sensitivity, Gaussian DP, the ledger. Float64 on the host throughout."""
