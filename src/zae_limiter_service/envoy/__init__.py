"""Envoy's rate limit protocol, version 3, over gRPC. Needs the extra ``envoy``."""
