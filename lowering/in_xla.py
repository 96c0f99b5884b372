"""MX calls inside XLA's own compilation: `jax.jit` runs programs with `QuantizeMX` calls on the CPU.

    with lowering.enable_in_xla():
        with jax_mx.lowering_mode("custom_call"):
            data, scale = jax.jit(lambda x: jax_mx.quantize_mx(x))(x)

While enabled, XLA hands every module it compiles for the CPU to this file, which puts the bit-exact implementation in
the place of each MX call, legalized or not, and leaves everything else as it is.

Limits. The hook is process-global: modules compiled meanwhile by other threads pass through it too. A function that was
compiled before is not compiled again. What is compiled meanwhile stays compiled in jit's own cache after exit. The
persistent compilation cache does not know about the hook and is switched off meanwhile. Calls must have row-major
layouts, and nothing is fused across them.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import jax
from jax.experimental.compilation_cache import compilation_cache

from lowering import _compat
from lowering.diagnostics import Diagnostic, LoweringError, error
from lowering.expansion import FUNCTION_NAME, MxOp, lowered
from lowering.hlo_graft import NEEDLES, expand_in_proto
from lowering.hlo_proto import NAME, Message

HOOK_NAME = "jax-mx-expand-calls"
EXPANSION_MODULE = f"jit_{FUNCTION_NAME}".encode()
"""Name that jax gives to the module of an expansion."""


@dataclass
class Hook:
    """What happened while the hook was enabled.

    Attributes:
        modules: Modules that XLA compiled for the CPU.
        expanded: MX calls expanded in them.
        failures: Why calls could not be expanded; XLA then reports an unknown custom call.
    """

    modules: int = 0
    expanded: int = 0
    failures: list[Diagnostic] = field(default_factory=list)
    _cache_was_on: bool = field(default=False, repr=False)
    _capturing: bool = field(default=False, repr=False)
    _captured: bytes = field(default=b"", repr=False)

    def __call__(self, proto: bytes) -> bytes | None:
        """Returns the module with its MX calls expanded, None when it has none."""
        if self._capturing and Message.parse(proto).get_bytes(NAME) == EXPANSION_MODULE:
            self._captured = proto
            return None
        self.modules += 1
        if not any(needle in proto for needle in NEEDLES):
            return None
        try:
            changed, count = expand_in_proto(proto, self.optimized)
        except LoweringError as e:
            self.failures += e.diagnostics
            return None
        self.expanded += count
        return changed if count else None

    def optimized(self, operation: MxOp) -> bytes:
        """Returns an expansion as XLA hands it over at this stage, fused; unfused operations would not compile here.

        XLA compiles it for that, from within the compilation that needs it.
        """
        if operation not in _optimized:
            self._capturing = True
            try:
                lowered(operation).compile()
            finally:
                self._capturing = False
            _optimized[operation] = self._captured
        return _optimized[operation]


_enabled: list[Hook] = []
_optimized: dict[MxOp, bytes] = {}


def is_enabled() -> bool:
    """Whether MX calls are expanded in XLA's compilations at the moment."""
    return bool(_enabled)


def start_in_xla() -> Hook:
    """Enables the expansion of MX calls in XLA's compilations for the CPU until `stop_in_xla`.

    Raises:
        RuntimeError: When it is enabled already.
    """
    if _enabled:
        raise RuntimeError("MX calls are already expanded in XLA; call stop_in_xla first")
    hook = Hook(_cache_was_on=jax.config.jax_enable_compilation_cache)  # type: ignore[attr-defined]
    _use_compilation_cache(False)
    _compat.register_hlo_module_transformation(
        hook, name=HOOK_NAME, stage=_compat.PipelineStage.PRE_SCHEDULER, platforms="cpu"
    )
    _enabled.append(hook)
    return hook


def stop_in_xla() -> Hook:
    """Disables it again; returns what happened meanwhile.

    Raises:
        RuntimeError: When it is not enabled.
    """
    if not _enabled:
        raise RuntimeError("MX calls are not expanded in XLA; call start_in_xla first")
    hook = _enabled.pop()
    _use_compilation_cache(hook._cache_was_on)
    cleared = _compat.clear_hlo_module_transformation(
        HOOK_NAME, stage=_compat.PipelineStage.PRE_SCHEDULER, platforms="cpu"
    )
    if not cleared:
        raise RuntimeError(f"XLA does not know the transformation {HOOK_NAME}: something else has cleared it")
    return hook


def _use_compilation_cache(on: bool) -> None:
    """Switches the persistent compilation cache: what it holds was compiled without the hook, or would be with it."""
    jax.config.update("jax_enable_compilation_cache", on)
    compilation_cache.reset_cache()  # jax asks the flag once and remembers the answer


@contextlib.contextmanager
def enable_in_xla() -> Iterator[Hook]:
    """Expands MX calls in XLA's compilations for the CPU within a `with` statement.

    Yields:
        The hook, which counts modules and calls.

    Raises:
        LoweringError: At the end, when calls could not be expanded, or when XLA compiled nothing at all meanwhile
            (code MX007): the functions run were compiled before, so the block did not do what it seems to.
    """
    hook = start_in_xla()
    try:
        yield hook
    except (jax.errors.JaxRuntimeError, LoweringError) as e:
        if hook.failures:
            raise LoweringError(hook.failures) from e
        raise
    finally:
        stop_in_xla()
    if hook.failures:
        raise LoweringError(hook.failures)
    if hook.modules == 0:
        raise error(
            "MX007",
            "XLA compiled nothing while MX calls were to be expanded",
            "call a function that is not compiled yet, or jax.clear_caches() first",
        )
