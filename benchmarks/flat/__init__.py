"""What must stay flat: the cost of a claim and of a renewal, whatever has piled up, as ratios within one run."""
