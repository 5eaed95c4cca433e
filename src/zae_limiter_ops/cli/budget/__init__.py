"""The command that lists budgets."""
