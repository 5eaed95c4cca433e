"""A bucket that is split into shards: several items that together hold the whole bucket."""
