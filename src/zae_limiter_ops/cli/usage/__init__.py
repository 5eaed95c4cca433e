"""The commands that report consumed tokens."""
