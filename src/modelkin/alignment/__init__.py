"""Which hidden axis, layer, neuron, head and expert of one model meets which of another, whatever was done to hide it."""
