"""What only pages need, until each is rewritten."""
