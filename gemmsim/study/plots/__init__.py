"""Pictures of studies, all in one style."""
