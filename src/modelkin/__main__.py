"""`python -m modelkin`."""

from modelkin.cli import main

main(prog_name="modelkin")
