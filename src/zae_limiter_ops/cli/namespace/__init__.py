"""The commands that manage namespaces."""
