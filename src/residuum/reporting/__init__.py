"""Tables and words made from result records alone; nothing here loads a model."""
