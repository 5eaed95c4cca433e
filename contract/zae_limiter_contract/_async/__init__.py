"""The suite for the async tree; the sync one beside it is generated from it."""
