"""The engine over a store of items."""
