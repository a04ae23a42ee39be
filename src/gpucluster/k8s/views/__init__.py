"""One View a template: exactly its variables, as JSON. Made from the plan, with no look-up."""
