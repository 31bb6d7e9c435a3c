"""Where values are spilled when the object store has no room. It decides nothing about which values."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from sooner._session import resources

# How memory becomes free (Oakes 2020, table 5.1): pinning and explicit free, explicit free only, pinning and
# unpinning.
EVICTIONS = ("spill", "recompute", "unpin")
_IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"})
_ELSEWHERE = "/var/tmp"  # noqa: S108  files there have no name, so nobody else can open them


def directories(asked: Sequence[str | os.PathLike[str]] | None, base: str) -> list[str]:
    """The directories for spilled values, or the URL of an object store.

    Args:
        asked: The user's directories; an empty sequence: spilling is off. None: the directory for sessions,
            or /var/tmp if that one is in memory.
        base: The directory for sessions.

    Returns:
        Absolute paths. Or a URL, and a directory for what cannot be in an object store, if there is one on a
        disk.

    Raises:
        ValueError: `asked` is no sequence of paths, a path is no directory, or a URL is wrong or not alone.
    """
    if asked is None:
        return _on_disk(base)
    if isinstance(asked, str | bytes | os.PathLike) or not isinstance(asked, Sequence):
        raise ValueError(f"spill_directories must be a list of directories, not {asked!r}")
    paths = []
    for path in asked:
        if not isinstance(path, str | os.PathLike):
            raise ValueError(f"spill_directories must be a list of directories, and {path!r} is no path")
        if isinstance(path, str) and "://" in path:
            _check_url(path, len(asked))
            return [path, *_on_disk(base)]
        place = Path(path).resolve()
        if not place.is_dir():
            raise ValueError(f"spill_directories: {place} is no directory; create it, or name another one")
        paths.append(str(place))
    return paths


def _check_url(url: str, count: int) -> None:
    from sooner import _sooner

    _sooner.check_store_url(url)
    if count > 1:
        raise ValueError(
            f"spill_directories: {url} is an object store and stands with {count - 1} more; "
            "name it alone, or directories"
        )


def _on_disk(base: str) -> list[str]:
    places = [Path(place) for place in (base, _ELSEWHERE)]
    return [str(place.resolve()) for place in places if place.is_dir() and not _is_in_memory(place)][:1]


def max_bytes(asked: int | None) -> int | None:
    """How many bytes of values may be on disk; None: as many as there is room for.

    Raises:
        ValueError: `asked` is no positive number.
    """
    if asked is None:
        return None
    size = int(resources.amount("max_spill_bytes", asked))
    if size <= 0:
        raise ValueError(f"max_spill_bytes must be positive, not {asked!r}; spill_directories=[] switches spilling off")
    return size


def eviction(asked: str | None) -> str:
    """How memory becomes free.

    Raises:
        ValueError: `asked` is none of `EVICTIONS`.
    """
    if asked is None:
        return EVICTIONS[0]
    if asked not in EVICTIONS:
        raise ValueError(f'eviction must be "spill", "recompute" or "unpin", not {asked!r}')
    return asked


def _is_in_memory(path: Path) -> bool:
    real = str(path.resolve())
    found = ("", "")
    try:
        with Path("/proc/self/mounts").open(encoding="utf-8", errors="surrogateescape") as mounts:
            for line in mounts:
                _, mounted, kind, *_ = line.split(" ")
                mounted = mounted.replace("\\040", " ")
                is_above = real == mounted or real.startswith(mounted.rstrip("/") + "/")
                if is_above and len(mounted) >= len(found[0]):
                    found = (mounted, kind)
    except (OSError, ValueError):
        return False
    return found[1] in _IN_MEMORY
