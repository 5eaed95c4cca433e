"""Engines: one folder each, plugged in at the ports."""
