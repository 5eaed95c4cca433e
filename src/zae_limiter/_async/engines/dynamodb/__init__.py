"""DynamoDB as the store of items: its client, and opening, making and migrating a table."""
