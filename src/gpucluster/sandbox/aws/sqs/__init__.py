"""Amazon SQS, where moto differs from AWS."""
