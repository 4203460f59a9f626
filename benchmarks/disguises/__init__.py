"""How often a disguised model is found, by disguise and by what lies under it. docs/calibration.md shows the table.

    python -m benchmarks.disguises run MODELS --out DIR      disguise and compare models of a zoo, resumable
    python -m benchmarks.disguises publish [--from DIR]      data file and table

Models of the half of the zoo that no threshold has seen are disguised, each in a folder that is gone afterwards, and
compared at the default budget with the model that they come from. `publish` needs the data alone.
"""
