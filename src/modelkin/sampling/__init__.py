"""What is read of a pair, and in what order: facing layers, one offset an index set, readings that can be kept."""
