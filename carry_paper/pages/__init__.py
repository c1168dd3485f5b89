"""What exists only for the book: pages and their words, verdict boxes, the claims page, the playground's export."""
