"""What people and schedules ask for: one verb per module. They see ports and the model, never an adapter."""
