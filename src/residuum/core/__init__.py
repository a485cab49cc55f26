"""What every part shares: samples, splits, seeds, the input space, the registry, errors, console and files."""
