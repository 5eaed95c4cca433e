"""The commands that run a DynamoDB-compatible server on this machine."""
