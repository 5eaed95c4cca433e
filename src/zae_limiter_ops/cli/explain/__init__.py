"""The command that predicts the answer to the next acquire."""
