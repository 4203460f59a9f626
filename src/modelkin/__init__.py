"""Do the weights of model B descend from those of model A?"""

__version__ = "0.1.0"
