"""Split buckets without I/O: which shards exist, which one is used, transactions over several."""
