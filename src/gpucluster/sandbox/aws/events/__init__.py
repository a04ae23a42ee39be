"""EventBridge: events about instances and their delivery."""
