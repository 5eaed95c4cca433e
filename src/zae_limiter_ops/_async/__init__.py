"""Deployments and manifests: the hand-written source of ``_sync``."""
