"""The commands that manage limits by manifests."""
