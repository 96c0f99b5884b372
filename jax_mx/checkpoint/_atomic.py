"""Files that appear only when they are complete, so that a failure loses nothing that was there before."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Gives a temporary file beside `path` to write to, which takes its place when the block ends well.

    Raises:
        OSError: the directory cannot be written to.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)  # mkstemp makes it private
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
