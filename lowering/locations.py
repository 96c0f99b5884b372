"""From an MLIR location to the user's source line, and away with locations that are nobody's."""

from typing import Any

from lowering._compat import ir
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


def remove_made_up(module: Any) -> bool:
    """Makes the locations unknown that the parser made up from the lines of the text; real ones stay.

    Args:
        module: The MLIR module, changed in place. Its context must be current.

    Returns:
        Whether a real location is left.
    """
    unknown = ir.Location.unknown()
    real = False

    def cleaned(location: Any) -> Any:
        nonlocal real
        kept = _without_made_up(location, unknown)
        real = real or kept != unknown
        return kept

    def visit(op: Any) -> Any:
        op.location = cleaned(op.location)
        for region in op.regions:
            for block in region.blocks:
                for argument in block.arguments:
                    argument.set_location(cleaned(argument.location))
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return real


def _without_made_up(location: Any, unknown: Any) -> Any:
    """Returns a location with unknown in the place of lines of the text."""
    # Printed, a location has its file names escaped: no other name can look like this, nor fail to be UTF-8.
    if f'"{_TEXT_BUFFER}":' not in str(location):
        return location
    frames = []
    while type(location).__name__ == "CallSiteLoc":
        frames.append(_without_made_up(location.callee, unknown))
        location = location.caller
    kind = type(location).__name__
    if kind == "FileLineColLoc":
        location = unknown if location.filename == _TEXT_BUFFER else location
    elif kind == "NameLoc":
        location = ir.Location.name(location.name_str, _without_made_up(location.child_loc, unknown))
    elif kind == "FusedLoc":
        parts = [_without_made_up(part, unknown) for part in location.locations]
        location = ir.Location.fused(parts, location.metadata)
    return ir.Location.callsite(frames[0], [*frames[1:], location]) if frames else location
