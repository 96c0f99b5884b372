"""The choice between the native kernels and XLA, and what it comes to for one module.

The native kernels are for programs that run on the CPUs of this machine and on one device. They are never taken by an
exported module, which must run elsewhere, nor where XLA partitions a computation over devices: it could not split a
call that it knows nothing of, and would gather the whole array first. The body of a `jax.shard_map` over all mesh axes
is already split, so it takes them.
"""

import contextlib
import functools
import logging
import os
from dataclasses import dataclass
from typing import Any, Literal, get_args

import jax

from jax_mx._compat import runs_on_one_device, set_user_context
from jax_mx._native import library

Choice = Literal["auto", "xla", "native"]
ENVIRONMENT_VARIABLE = "JAX_MX_IMPLEMENTATION"
_CPU = "cpu"


@dataclass(frozen=True)
class Implementation:
    """What runs on the CPU, and why.

    Attributes:
        name: "native" or "xla".
        reason: one line for a person to read.
    """

    name: Literal["native", "xla"]
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


def implementation() -> Implementation:
    """The implementation that `quantize_mx` and `dequantize_mx` take on the CPU now, and why.

    Every other platform takes "xla", or, on "neuron", the `QuantizeMX` custom call. So do exported modules, modules
    that XLA partitions over several devices, and lowering modes other than "auto".

    Raises:
        RuntimeError: "native" is forced and there are no native kernels.
        ValueError: the environment variable names no implementation.
    """
    choice = _choice.value
    if choice not in get_args(Choice):  # only the environment is not checked before it is chosen
        raise ValueError(f"{ENVIRONMENT_VARIABLE}: got {choice!r}, want one of {', '.join(get_args(Choice))}")
    if choice == "xla":
        return Implementation("xla", "chosen by jax_mx.config or JAX_MX_IMPLEMENTATION")
    loaded = library.load()
    if isinstance(loaded, library.Library):
        chosen = "chosen by jax_mx.config or JAX_MX_IMPLEMENTATION" if choice == "native" else "the default on the CPU"
        return Implementation("native", f"{loaded.instruction_set} kernels, {chosen}")
    if choice == "native":
        raise RuntimeError(_missing(ENVIRONMENT_VARIABLE, loaded))
    return Implementation("xla", loaded.reason)


def takes_native(ctx: Any) -> bool:
    """Whether the module of a lowering rule's context takes the native kernels."""
    module = ctx.module_context
    if tuple(module.platforms) != (_CPU,) or module.lowering_parameters.for_export:
        return False
    if not runs_on_one_device(module):
        return False
    chosen = implementation()
    if chosen.name == "xla" and _choice.value == "auto":
        _say_once(chosen.reason)
    return chosen.name == "native"


def check_choice(name: str, choice: Any) -> Choice:
    """`choice`, if it is one that can be met.

    Raises:
        ValueError: it is none.
        RuntimeError: it is "native" and there are no native kernels.
    """
    if choice not in get_args(Choice):
        raise ValueError(f"{name}: got {choice!r}, want one of {', '.join(map(repr, get_args(Choice)))}")
    if choice == "native" and isinstance(loaded := library.load(), library.Unavailable):
        raise RuntimeError(_missing(name, loaded))
    return choice


def set_for_process(choice: Choice) -> None:
    """Sets the choice of every thread."""
    set_user_context(_choice, choice)


def set_within(choice: Choice) -> contextlib.AbstractContextManager[None]:
    """Sets the choice of this thread within a `with` statement."""
    return _choice(choice)


def _missing(name: str, loaded: library.Unavailable) -> str:
    return f"{name}: got 'native', but {loaded.reason}"


@functools.cache
def _say_once(reason: str) -> None:
    logging.getLogger("jax_mx").warning("jax_mx runs what XLA compiles on the CPU, which is slower: %s", reason)


_choice = jax.make_user_context(default_value=os.environ.get(ENVIRONMENT_VARIABLE) or "auto")
