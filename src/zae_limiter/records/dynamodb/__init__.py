"""Stored form of each kind of item, and its model."""
