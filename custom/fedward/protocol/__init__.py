"""What server and sites say to each other: messages, their types and their checks."""
