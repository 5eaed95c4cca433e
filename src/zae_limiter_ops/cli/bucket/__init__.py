"""The commands that show, list, reset, top up and pause token buckets."""
