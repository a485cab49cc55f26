"""Calculators for the literature's guarantees; numpy and scipy only."""
