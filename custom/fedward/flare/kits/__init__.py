"""Startup kits: the rules that provisioning writes into them, their checks, and their own processes."""
