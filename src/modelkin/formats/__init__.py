"""File formats: bytes to named tensors, and tensors to numbers. Headers are checked before anything is believed."""

from modelkin.formats.layout import Layout, read_headers, read_layout, settle

__all__ = ["Layout", "read_headers", "read_layout", "settle"]
