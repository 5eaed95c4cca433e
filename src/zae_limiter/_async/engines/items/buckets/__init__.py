"""Writes to one bucket item: group commit, the write loop, one conditional write, upkeep."""
