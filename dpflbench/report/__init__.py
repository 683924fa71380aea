"""Records to what people read: a report is a pure function of records."""
