"""Startup kits: the rules that provisioning writes, their checks, and their own processes."""
