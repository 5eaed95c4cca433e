"""Every decision about a bucket, pure: state, request and stamp in, decision and new state out."""
