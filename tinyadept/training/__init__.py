"""What train.py trains: tasks, each in a file of its own, and what they share."""
