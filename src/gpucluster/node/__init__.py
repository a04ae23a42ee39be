"""What runs on a machine as it boots: the agent and its units."""
