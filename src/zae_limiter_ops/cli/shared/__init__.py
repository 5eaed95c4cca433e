"""Options, output and errors that all commands share."""
