"""The judge: it reads histories and imports nothing of the package that they are about."""
