"""A progress bar on one line of a terminal."""

import shutil
import time
from types import TracebackType
from typing import Self, TextIO

_INTERVAL = 0.1


class ProgressBar:
    """Draws how much is done, at most ten times a second, and wipes itself when the block ends."""

    def __init__(self, stream: TextIO, *, shown: bool):
        """Draws on `stream`, or not at all when it is not `shown`."""
        self._stream = stream
        self._shown = shown
        self._started = self._drawn = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def update(self, done: int, total: int, name: str) -> None:
        """Shows that `done` of `total` bytes are done and `name` is being worked on."""
        now = time.monotonic()
        if not self._shown or (now - self._drawn < _INTERVAL and done < total):
            return
        self._drawn = now
        columns = shutil.get_terminal_size().columns
        self._stream.write("\r" + bar_line(done, total, now - self._started, name, columns - 1) + "\x1b[K")
        self._stream.flush()


def bar_line(done: int, total: int, seconds: float, name: str, columns: int) -> str:
    """The bar as one line of at most `columns` characters."""
    share = done / total if total else 1.0
    rate = done / seconds if seconds > 0 else 0.0
    left = f"{(total - done) / rate:.0f} s left" if rate else ""
    filled = int(24 * share)
    line = f"[{'#' * filled}{'.' * (24 - filled)}] {share:4.0%} {done / 1e6:.0f}/{total / 1e6:.0f} MB {left}  {name}"
    return line[: max(columns, 0)]
