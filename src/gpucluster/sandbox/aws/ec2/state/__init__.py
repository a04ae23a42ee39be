"""The state behind EC2's API: instances, volumes, addresses, capacity and reservations. Pure; time is an argument."""
