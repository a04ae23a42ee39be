"""The port to a cloud: requests, answers, fault classes; AWS over boto3, and one model for every stand-in."""
