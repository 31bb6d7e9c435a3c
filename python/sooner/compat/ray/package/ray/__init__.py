"""The package `ray` of programs that run on sooner: what `sooner.compat.ray` makes takes its place."""

import sys

from sooner.compat.ray.facade import become

become(sys.modules[__name__])
