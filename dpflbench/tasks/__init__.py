"""What is learnt, by whom: data sets, partitions, populations, models."""
