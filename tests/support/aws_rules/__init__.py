"""The limiter's requests to DynamoDB: the rules that they must keep, and their forms."""
