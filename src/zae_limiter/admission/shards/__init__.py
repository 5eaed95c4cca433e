"""A bucket in several items: shares that together are the whole, and how they are used."""
