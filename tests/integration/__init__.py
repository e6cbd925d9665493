"""Integration tests: one component with its real neighbours, such as an API server, Redis, AWS or Azure stand-ins.

Each test waits for a state with a deadline, never for a span of time."""
