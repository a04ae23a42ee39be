"""The interface to a cloud: calls, answers, classes of faults, and EC2 over boto3."""
