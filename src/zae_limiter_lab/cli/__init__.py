"""The commands of the laboratory, registered with the command line by an entry point."""
