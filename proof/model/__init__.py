"""Small models of the write protocol, explored completely: ``python -m proof.model``."""
