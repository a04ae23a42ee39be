"""What the user wrote: frozen models, YAML with marks, rules, JSON Schema."""
