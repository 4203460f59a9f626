"""Small experiments that teach one thing each. STUDIES lists them; nothing of a study is imported before it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Literal

from modelkin.errors import UsageError

if TYPE_CHECKING:
    from modelkin.records.survey import Study
    from modelkin.sources import ReadOptions

Models = Literal["none", "any", "two"]


@dataclass(frozen=True, slots=True)
class Settings:
    """What a study may be told. `models` is empty where the bundled ones are to be used; `reading` None is as usual."""

    models: tuple[str, ...] = ()
    small: bool = False
    seed: int = 0
    reading: ReadOptions | None = None


@dataclass(frozen=True, slots=True)
class Experiment:
    """A study before it has run: `models` says which it takes, `small` whether there is a quick form of it.

    `extra` names the optional dependencies that it needs.
    """

    name: str
    summary: str
    models: Models
    module: str
    small: bool = False
    extra: str | None = None

    def run(
        self,
        models: Sequence[str] = (),
        *,
        small: bool = False,
        seed: int = 0,
        reading: ReadOptions | None = None,
    ) -> Study:
        """The record of the study. Without `models` it looks at bundled ones."""
        if self.models == "none" and models:
            raise UsageError(f"the study {self.name} takes no models", where=models[0])
        if self.models == "two" and len(models) not in (0, 2):
            raise UsageError(f"the study {self.name} takes two models, or none for the bundled ones")
        if small and not self.small:
            raise UsageError(f"the study {self.name} has no small form: it takes seconds as it is")
        study: Callable[[Settings], Study] = import_module(f"modelkin.studies.{self.module}").study
        return study(Settings(tuple(models), small, seed, reading))


STUDIES: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            "cosine-bias",
            "Why the cosine of positive vectors is near one whatever their pattern.",
            models="none",
            module="cosine_bias",
        ),
        Experiment(
            "init-toy",
            "Small GPT-2 models trained apart: gains that start at one stay alike, gains that start at random do not.",
            models="none",
            module="init_toy",
            small=True,
            extra="torch",
        ),
        Experiment(
            "gain-scale",
            "How gains grow with depth, scale and pattern taken apart.",
            models="any",
            module="gain_scale",
        ),
        Experiment(
            "precision",
            "How much of a gain's pattern survives BF16, FP16 and FP8 beside a large scale.",
            models="any",
            module="precision",
        ),
        Experiment(
            "claim",
            "The 182 sigma argument step by step on two models, and where it fails.",
            models="two",
            module="claim",
        ),
    )
}

__all__ = ["STUDIES", "Experiment", "Settings"]
