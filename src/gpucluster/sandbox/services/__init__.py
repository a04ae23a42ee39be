"""Services of AWS beside EC2 that the sandbox answers itself, because moto lacks them or takes anything."""
