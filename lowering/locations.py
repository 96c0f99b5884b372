"""From an MLIR location to the user's source line."""

from typing import Any

from lowering.diagnostics import SourceLocation

_TEXT_BUFFER = "-"
_LIBRARY = "/jax_mx/"


def source_of(location: Any, module_name: str) -> SourceLocation | None:
    """Returns the innermost line of a location that is the user's: frames inside `jax_mx` itself are passed over.

    Args:
        location: An operation's location.
        module_name: Name of the module's own file; it stands for lines of the text just parsed.
    """
    frames: list[SourceLocation] = []
    _collect(location, module_name, frames)
    for frame in frames:
        if _LIBRARY not in frame.file:
            return frame
    return frames[0] if frames else None


def _collect(location: Any, module_name: str, frames: list[SourceLocation]) -> None:
    """Appends the file lines of a location, innermost first. Call sites nest deeply, so their spine is a loop."""
    while True:
        kind = type(location).__name__
        if kind == "CallSiteLoc":
            _collect(location.callee, module_name, frames)
            location = location.caller
        elif kind == "NameLoc":
            location = location.child_loc
        else:
            break
    if kind == "FileLineColLoc":
        in_module = location.filename == _TEXT_BUFFER
        file = module_name if in_module else location.filename
        frames.append(SourceLocation(file=file, line=location.start_line, in_module=in_module))
    elif kind == "FusedLoc":
        for part in location.locations:
            _collect(part, module_name, frames)
