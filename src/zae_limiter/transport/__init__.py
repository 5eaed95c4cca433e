"""DynamoDB's wire: signed JSON over HTTP/1.1, once for event loops and once for threads."""
