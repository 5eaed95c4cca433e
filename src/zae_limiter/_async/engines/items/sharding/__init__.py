"""Split buckets: routing, writes over several shards, splitting and merging."""
