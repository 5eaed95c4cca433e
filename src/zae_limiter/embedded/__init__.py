"""The core that the embedded engines share: every operation, over tables that an engine supplies.

Operations are plain functions ``(tables, namespace_id, ...)`` that an engine runs inside one
transaction. They read, let ``zae_limiter.admission`` decide, and write.
"""
