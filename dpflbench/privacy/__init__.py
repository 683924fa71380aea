"""What it costs: sensitivity, accounting, the ledger, a second opinion and an audit. Float64 on the host throughout."""
