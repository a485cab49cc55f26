"""The site: pages made from source and records, pictures drawn from runs, and its check."""
