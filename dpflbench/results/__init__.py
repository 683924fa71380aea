"""What runs leave behind: one record a run, the cells of a table that they fill, and the folder that holds both."""
