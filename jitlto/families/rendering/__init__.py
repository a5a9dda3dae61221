"""What templates may say, and the process in which they are rendered."""
