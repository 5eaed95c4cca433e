"""How long clients of these tests wait."""

TIMEOUT_S = 1.0  # long enough for a busy machine to answer, short enough to wait for in vain
