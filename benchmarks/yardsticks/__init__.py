"""Published ways of telling kinship from weights, written anew from their formulas, and how a disguise defeats each.

    python -m benchmarks.yardsticks MODELS … --out scores.csv [--pairs strangers,relatives] [--disguises none,composed]
    python -m benchmarks.yardsticks --out scores.csv --page docs/yardsticks.md      page and data file, from the scores

MODELS are folders of models with known descent, as the zoo makes them. The file of scores grows: a run that was
interrupted goes on, and another one adds what is not there yet.
"""
