"""The engine on DynamoDB."""
