"""Files that appear only when they are complete, so that a failure loses nothing that was there before."""

import contextlib
import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PREFIX_CHARACTERS = 40
"""How much of a file's name its temporary file carries: a name may be as long as the file system allows."""


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Gives a temporary file to write to, whose content is that of `path` once the block ends well.

    The temporary file stands beside the file and takes its place, with its mode and, where allowed, its owner. Links
    are followed. What exists and is no regular file, such as a device or a pipe, is written to instead.

    Raises:
        OSError: the file or its directory cannot be written to.
    """
    before = _existing(path)
    place = None if _is_special(path, before) else path.resolve()
    try:
        handle, name = tempfile.mkstemp(
            prefix=f".{path.name[:_PREFIX_CHARACTERS]}.", dir=None if place is None else place.parent
        )
    except OSError as e:
        raise type(e)(e.errno, e.strerror, str(path)) from None  # not the temporary file's name
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        if place is None:
            with temporary.open("rb") as source, path.open("wb") as target:
                shutil.copyfileobj(source, target)
            temporary.unlink()
            return
        _take_over(temporary, before)
        temporary.replace(place)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_bytes(path: Path, data: bytes) -> None:
    """Writes a file all at once, as `replacing` does: readers see the old content or the new, never a part.

    Raises:
        OSError: the file or its directory cannot be written to.
    """
    if _is_special(path, _existing(path)):
        path.write_bytes(data)
        return
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def _existing(path: Path) -> os.stat_result | None:
    """What stands at `path`, links followed, None when nothing does. Raises OSError when it may not be written to."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    # A rename asks only for the directory's permission; a file that is read-only is so for a reason.
    if not os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    return found


def _is_special(path: Path, found: os.stat_result | None) -> bool:
    """Whether `path` is to be written to where it is: nothing can take the place of a device or an open file."""
    if found is None:
        return False
    if not stat.S_ISREG(found.st_mode):
        return True
    resolved = path.resolve()  # a file that is open and deleted has a name in /proc, but no place
    return not resolved.exists() or not resolved.samefile(path)


def _take_over(temporary: Path, before: os.stat_result | None) -> None:
    """Gives a temporary file, which is private, the owner and mode of the file it replaces, or those of a new one."""
    if before is None:
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        return
    if hasattr(os, "chown"):
        with contextlib.suppress(PermissionError):  # only root can give files away
            os.chown(temporary, before.st_uid, before.st_gid)
    temporary.chmod(stat.S_IMODE(before.st_mode))
