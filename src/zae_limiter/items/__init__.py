"""The engine over a store of items, without its calls: stored forms, and each decision."""
