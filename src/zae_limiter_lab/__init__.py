"""Tools that try a limiter out: load tests, Locust users and the demo."""
