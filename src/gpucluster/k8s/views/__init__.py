"""One View for each template, with exactly its variables as JSON. Views come from the plan without look-ups."""
