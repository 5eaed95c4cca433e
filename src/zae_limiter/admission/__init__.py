"""Every decision about a bucket: state, request and moment in, decision and new state out."""
