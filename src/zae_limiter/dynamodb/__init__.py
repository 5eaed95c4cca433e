"""Everything of the DynamoDB engine that needs no call: the table, and each decision."""
