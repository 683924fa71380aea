"""Tables of a report, a file for each question: who is best, by how much, at what cost, for whom, and from what."""
