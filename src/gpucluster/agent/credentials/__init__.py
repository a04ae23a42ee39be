"""Temporary AWS credentials for jobs."""
