"""A small model of the write protocol, explored completely: ``python -m proof.model``."""
