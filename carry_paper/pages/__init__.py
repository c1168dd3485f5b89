"""Parts of the book: pages, their words, verdict boxes, the claims page, the playground's runs."""
