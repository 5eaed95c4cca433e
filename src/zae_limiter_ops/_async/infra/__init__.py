"""Stacks: create, change, delete and find them."""
