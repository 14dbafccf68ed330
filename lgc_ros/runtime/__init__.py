"""What runs below everything: threads, compiled loops, memory and stage timing."""
