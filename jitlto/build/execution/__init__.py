"""What compiles are asked for, and where: requests, worker processes, transport and progress events."""
