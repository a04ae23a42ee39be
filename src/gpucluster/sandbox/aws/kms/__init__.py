"""KMS: moto stores the keys; here is what other services refuse because of a key."""
