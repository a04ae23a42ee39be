"""AWS STS."""
