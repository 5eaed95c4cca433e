"""The only hand-written code that awaits; its sync mirror is generated from it."""
