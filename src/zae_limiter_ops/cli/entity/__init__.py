"""The commands that manage entities, their parents and their limits."""
