"""Stored form and model, one package per store; they do not know each other."""
