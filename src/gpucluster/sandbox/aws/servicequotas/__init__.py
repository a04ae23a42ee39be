"""Service Quotas for vCPUs of EC2."""
