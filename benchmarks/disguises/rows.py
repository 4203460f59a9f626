"""What is kept of a comparison with a disguised model, as text; and the words of the columns."""

from __future__ import annotations

from benchmarks.calibration.results import RELATION, UNMASKED

NOISY, FREE = "composed + noise", "composed + noise + free gains"
# As `zoo.disguise` has them; written out, for tables are made where the zoo is not.
MOVES = (
    *("permute_heads", "turn_queries", "mix_values", "permute_neurons", "scale_neurons", "permute_experts"),
    *("rotate_hidden", "refactor_gains", "flip_signs", "permute_hidden", "permute_vocabulary"),
)
BASE, STRANGERS = "the model itself", "strangers"
# What lies below a disguise, and the step of the zoo that made it.
UNDER = {
    BASE: "",
    "fine-tune": "sft",
    "heavy continued pretraining": "cpt-heavy",
    "tokenizer swap": "swap",
    "depth pruning": "shallow",
    "depth up-scaling": "upscale",
    "width pruning": "narrow",
    "experts, copies": "moe-copied",
    "experts, parts": "moe-split",
    "experts, partly new": "moe-partly",
}
# The kind that should be named beside the disguise; nothing was done to the model itself.
KINDS = {
    "fine-tune": "fine-tune or continued-pretraining",
    "heavy continued pretraining": "fine-tune or continued-pretraining",
    "tokenizer swap": "vocabulary-surgery",
    "depth pruning": "depth-prune",
    "depth up-scaling": "depth-upscale",
    "width pruning": "width-prune",
    **dict.fromkeys(("experts, copies", "experts, parts", "experts, partly new"), "moe-upcycle"),
}
PAIR = ("under", "disguise", "draw", "a", "b", "half", "true_map")
VERDICT = ("modelkin", "policy", "verdict", "named", "log10_p", "least", "nothing", "seconds")
COLUMNS = (*PAIR, *VERDICT, *RELATION, *UNMASKED)
GROWING, PUBLISHED = "disguises.csv", "disguises.csv.xz"
