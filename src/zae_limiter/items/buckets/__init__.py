"""One bucket item without I/O: pending changes, the cache, plans, writes and their queue."""
