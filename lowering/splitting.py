"""Splits one text file into several modules at lines of `// -----`."""

SEPARATOR = "// -----"


def split(data: bytes) -> list[bytes]:
    """Returns the parts of a file. Each starts with blank lines in place of what went before: line numbers stay true.

    A file that is no text is one part.
    """
    try:
        lines = data.decode().splitlines(keepends=True)
    except UnicodeDecodeError:
        return [data]
    parts: list[bytes] = []
    current: list[str] = []
    start = 0
    for number, line in enumerate(lines):
        if line.strip() == SEPARATOR:
            parts.append(("\n" * start + "".join(current)).encode())
            current, start = [], number + 1
        else:
            current.append(line)
    parts.append(("\n" * start + "".join(current)).encode())
    return [p for p in parts if p.strip()] or [data]
