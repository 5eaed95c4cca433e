"""Tables in the memory of one process."""
