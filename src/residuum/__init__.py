"""Residuum: machine unlearning that can be checked."""
