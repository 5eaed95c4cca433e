"""Records of a table's stream, in the form in which Lambda delivers them."""

import boto3

TTL_IDENTITY = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}


def stream_records(endpoint, table):
    """Read all records of a table's stream from the server."""
    client = boto3.client("dynamodbstreams", endpoint_url=endpoint)
    (stream,) = client.list_streams(TableName=table)["Streams"]
    arn = stream["StreamArn"]
    records = []
    for shard in client.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]:
        iterator = client.get_shard_iterator(
            StreamArn=arn, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        while iterator:
            answer = client.get_records(ShardIterator=iterator)
            if not answer["Records"]:
                break
            records += map(as_delivered, answer["Records"])
            iterator = answer.get("NextShardIterator")
    client.close()
    return records


def as_delivered(record):
    """Return a record of GetRecords as a function gets it: times are numbers."""
    change = dict(record["dynamodb"])
    change["ApproximateCreationDateTime"] = change["ApproximateCreationDateTime"].timestamp()
    return {**record, "dynamodb": change}


def bucket_record(item, number, event_name="MODIFY"):
    """Return the record of a write that left ``item``."""
    return {
        "eventID": f"event-{number}",
        "eventName": event_name,
        "eventVersion": "1.1",
        "eventSource": "aws:dynamodb",
        "awsRegion": "us-east-1",
        "dynamodb": {
            "ApproximateCreationDateTime": 1_767_225_600.0,
            "Keys": {name: item[name] for name in ("PK", "SK")},
            "NewImage": item,
            "SequenceNumber": str(number),
            "SizeBytes": 500,
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        },
    }


def removal_record(item, number, identity=TTL_IDENTITY):
    """Return the record of a removal, by TTL unless ``identity`` is another one."""
    record = bucket_record(item, number, "REMOVE")
    record["dynamodb"]["OldImage"] = record["dynamodb"].pop("NewImage")
    return {**record, "userIdentity": identity} if identity else record
