"""A SQLite file, shared by the processes of one machine."""
