"""The wire for more than the limiter itself: control planes, S3, and the functions."""
