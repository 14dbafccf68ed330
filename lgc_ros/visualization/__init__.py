"""Pictures of matches, trajectories and landmarks, and the demo report."""
