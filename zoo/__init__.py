"""Small language models with known lineage: what the tests of descent are tried on. Not part of the package."""
