"""Figures of measures whose drawing is long; each file belongs to the measure of its name."""
