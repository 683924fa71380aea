"""Results that travel: one archive of a results folder, proved again by whoever receives it, and the board of many."""
