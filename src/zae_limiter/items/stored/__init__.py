"""Stored form and value of every kind of item, and the requests that write them."""
