"""Which implementation runs on the CPU: the native kernels or what XLA makes of plain operations.

Both give the same bits. The choice is automatic; the environment variable `JAX_MX_IMPLEMENTATION` or one of these
functions forces it. It is part of `jax.jit`'s cache key: a function that was already jitted is compiled again under
another choice.
"""

import contextlib

from jax_mx import _implementation
from jax_mx._compat import api_boundary
from jax_mx._implementation import Choice


@api_boundary
def set_implementation(choice: Choice) -> None:
    """Chooses the implementation for the process, in every thread.

    Args:
        choice: "auto" (the default) takes the native kernels where they can be used. "native" does so too, but raises
            where there are none at all. "xla" never takes them.

    Raises:
        ValueError: `choice` is none of these.
        RuntimeError: `choice` is "native" and there are no native kernels.
    """
    _implementation.set_for_process(_implementation.check_choice("choice", choice))


@api_boundary
def use_implementation(choice: Choice) -> contextlib.AbstractContextManager[None]:
    """Chooses the implementation within a `with` statement, in this thread.

    Args:
        choice: as for `set_implementation`.

    Returns:
        A context manager.

    Raises:
        ValueError: as `set_implementation` does.
        RuntimeError: as `set_implementation` does.
    """
    return _implementation.set_within(_implementation.check_choice("choice", choice))
