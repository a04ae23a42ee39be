"""The offline planner: the engine's side of Pulumi's protocol, so that a program's resources are seen without a cloud."""
