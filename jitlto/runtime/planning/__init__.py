"""From a configuration to a plan, and the recording of plans in use."""
