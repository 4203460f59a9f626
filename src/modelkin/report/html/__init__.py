"""The HTML report of a comparison."""

from __future__ import annotations

from modelkin.report.html.page import comparison_html

__all__ = ["comparison_html"]
