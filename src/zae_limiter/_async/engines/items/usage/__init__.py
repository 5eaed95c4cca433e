"""Usage on DynamoDB: rows that clients write, and queries that add them up."""
