"""Processes use a limiter while faults happen, and a checker judges what they have logged."""
