"""What a site allows: its policy, its approvals, its ledgers, and the encryption of its updates."""
