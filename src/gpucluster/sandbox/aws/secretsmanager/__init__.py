"""AWS Secrets Manager, where moto differs from AWS."""
