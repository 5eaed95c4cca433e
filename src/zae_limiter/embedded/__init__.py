"""The embedded engines' shared core: every operation once, over tables that an engine supplies.

Operations are plain functions ``(tables, namespace_id, ...)`` that an engine runs inside one
transaction. They read, let ``zae_limiter.admission`` decide, and write.
"""
