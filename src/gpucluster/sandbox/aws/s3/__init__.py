"""Amazon S3, where moto differs from AWS."""
