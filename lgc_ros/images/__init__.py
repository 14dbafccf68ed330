"""Images with their camera and stamp, and how their pixels are encoded in messages and files."""
