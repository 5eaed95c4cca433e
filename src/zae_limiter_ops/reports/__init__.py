"""Usage for people: charts, pictures and pages."""
