"""Everything that can be done to tensors, as functions. Names, argument order and results are PyTorch's."""

from .joining import *  # noqa: F403
from .loss import *  # noqa: F403
from .normalization import *  # noqa: F403
from .pointwise import *  # noqa: F403
from .products import *  # noqa: F403
from .windows import *  # noqa: F403
