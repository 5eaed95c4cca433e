"""The port of buckets: group commit, the write loop, queries, resets and top-ups."""
