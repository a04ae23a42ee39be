"""CloudWatch Logs: moto stores the groups; here are the rights of the calls."""
