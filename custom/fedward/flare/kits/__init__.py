"""Startup kits: the rules provisioning writes into them, their checks, and what reads them beside a
job.
"""
