"""What it costs: sensitivity, Gaussian DP, the ledger, and whether noise is what that says. Float64 on the host."""
