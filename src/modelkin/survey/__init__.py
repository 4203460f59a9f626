"""Many models side by side: each is read once, and everything is made from what was read."""

from __future__ import annotations

from modelkin.survey.reading import Collected, Model, SurveyOptions, collected
from modelkin.survey.surveying import survey, survey_of

__all__ = ["Collected", "Model", "SurveyOptions", "collected", "survey", "survey_of"]
