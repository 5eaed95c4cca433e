"""What only DynamoDB has, without its calls: the table, and tables of other programs."""
