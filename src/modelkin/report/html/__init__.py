"""The HTML report of a comparison, and of a survey."""

from __future__ import annotations

from modelkin.report.html.page import comparison_html, survey_html

__all__ = ["comparison_html", "survey_html"]
