"""WeiAvg."""
