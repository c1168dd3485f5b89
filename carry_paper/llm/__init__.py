"""Large language models that add (Sec. 6, App. A.3-A.4, App. G)."""
