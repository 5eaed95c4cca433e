"""The harness: worker processes with random workloads, stores, and the faults between them."""
