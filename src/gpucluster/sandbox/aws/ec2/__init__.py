"""EC2: the calls on instances and what they use, and the deletions that instances forbid. moto answers the rest."""
