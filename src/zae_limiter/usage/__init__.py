"""Usage of tokens: reports of hours, days and months, and rankings."""
