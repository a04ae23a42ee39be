"""The instance metadata service."""
