"""A reproducible companion to *Carrying over Algorithm in Transformers*: model, data, ablations, measurements."""
