"""Other witnesses: attacks, searches and comparisons of many models that look for what an audit may miss."""
