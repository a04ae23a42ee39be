"""AWS Systems Manager."""
