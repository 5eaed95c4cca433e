"""The service: leases over HTTP, and Envoy's rate limit protocol over gRPC.

Extras: ``pip install "/path/to/zae-limiter[service]"`` for HTTP, ``[envoy]`` for gRPC. The command
is ``zae-limiter serve``; this package has no public functions.
"""
