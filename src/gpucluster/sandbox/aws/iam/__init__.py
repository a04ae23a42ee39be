"""IAM: policies of roles and their evaluation."""
