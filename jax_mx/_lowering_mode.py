"""Whether the primitives of this package become custom calls or plain operations in a lowered module."""

import contextlib
from typing import Any, Literal, get_args

import jax

from jax_mx._compat import api_boundary

NEURON = "neuron"
QUANTIZE_TARGET = "QuantizeMX"
SCALED_DOT_TARGET = "__op$block_scaled_dot"

Mode = Literal["auto", "inline", "custom_call"]

EXPORT_DISABLED_CHECKS = tuple(
    jax.export.DisabledSafetyCheck.custom_call(target) for target in (QUANTIZE_TARGET, SCALED_DOT_TARGET)
)
"""What `jax.export.export(..., disabled_checks=...)` needs to let the custom calls through."""

_mode = jax.make_user_context(default_value="auto")


@api_boundary
def lowering_mode(mode: Mode) -> contextlib.AbstractContextManager[None]:
    """Chooses, within a `with` statement, what `quantize_mx` and `scaled_matmul_mx` are lowered to.

    The mode is part of `jax.jit`'s cache key: a function that was already jitted is lowered again under another mode.
    It is thread-local.

    Args:
        mode: "auto" (the default) lowers to the custom calls `QuantizeMX` and `__op$block_scaled_dot` for the platform
            "neuron", to a native kernel on the CPU where `jax_mx.config` allows it, and to plain operations elsewhere.
            "inline" lowers to plain operations everywhere. "custom_call" lowers to the custom calls everywhere, so
            that they can be looked at; no other platform than "neuron" can run them. What a call cannot say, such as
            a product of mixed formats, is an error under "custom_call" and plain operations under "auto". A custom
            call in a module of several devices is an error where `jax_use_shardy_partitioner` is off.

    Returns:
        A context manager.

    Raises:
        ValueError: `mode` is none of these.
    """
    if mode not in get_args(Mode):
        raise ValueError(f"mode: got {mode!r}, want one of {', '.join(map(repr, get_args(Mode)))}")
    return _mode(mode)


def current_mode() -> Mode:
    """The mode in force."""
    return _mode.value


def uses_custom_call(auto: bool) -> bool:
    """Whether the current mode asks for the custom call; `auto` says what "auto" means for the platforms at hand."""
    return {"auto": auto, "inline": False, "custom_call": True}[current_mode()]


def lowers_for_neuron(ctx: Any) -> bool:
    """Whether a lowering context lowers for "neuron".

    jax refuses to register a rule for a platform without a plugin, so the rule for "neuron" is the default one.
    """
    return NEURON in (ctx.platforms or ctx.module_context.platforms)
