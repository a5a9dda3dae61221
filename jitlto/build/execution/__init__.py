"""Running compiles: scheduling, worker processes, transport and progress events."""
