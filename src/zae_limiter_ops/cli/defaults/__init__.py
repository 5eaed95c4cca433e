"""The commands that manage the default limits of resources and of the system."""
