"""How long clients of these tests wait, and how late a busy machine may be."""

TIMEOUT_S = 0.5
SLACK_S = 0.35
