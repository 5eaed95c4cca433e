"""Everything in this process's memory."""
