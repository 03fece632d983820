"""What a site allows: its policy, approvals, privacy budget, and encryption."""
