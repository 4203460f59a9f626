"""names -> roles: a checkpoint's tensors as slots in one orientation, from families that are data."""

from modelkin.architectures.anatomy import Anatomy, Facts
from modelkin.architectures.family import Family
from modelkin.architectures.identify import families, identify
from modelkin.architectures.views import View

__all__ = ["Anatomy", "Facts", "Family", "View", "families", "identify"]
