"""How often `modelkin compare` is wrong, measured on models of known descent. docs/calibration.md is made from it.

    python -m benchmarks.calibration run MODELS --out DIR       compare the pairs of a zoo, resumable
    python -m benchmarks.calibration gauge --copies 100000      renumbered copies against the exact laws
    python -m benchmarks.calibration publish [--from DIR]       data file, tables, figures and page

`run` needs the weights of the zoo, `gauge` what `zoo/measured` keeps of them, `publish` the data file alone.
"""
