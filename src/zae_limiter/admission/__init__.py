"""Every decision about a bucket, as pure functions.

They take the state of the bucket, the request and the stamp, and return the decision and the new
state.
"""
