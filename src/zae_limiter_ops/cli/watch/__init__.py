"""``zae-limiter watch``: the thresholds of quotas, printed as they are raised."""
