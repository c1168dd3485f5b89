"""What pages draw: figures that several share, and how a page shows them."""
