"""How long clients of these tests wait."""

TIMEOUT_S = 0.5
