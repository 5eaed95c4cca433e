"""The suite for the async tree. The suite for the sync tree is generated from it."""
