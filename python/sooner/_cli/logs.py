"""`sooner logs`: the output of workers, on the node that is asked and on the others of its cluster.

The log files of the node that is asked are read directly; those of other nodes come through it, in pieces.
"""

from __future__ import annotations

import codecs
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from sooner._state import text
from sooner._state.snapshot import FILES, Snapshot

if TYPE_CHECKING:
    import argparse

_FOLLOW_SECONDS = 0.2
_NOT_FOUND = 1


class _Log(NamedTuple):
    """A log file. `node` is empty for the node that is asked."""

    node: str
    node_name: str
    name: str
    size: int

    @property
    def title(self) -> str:
        return f"{self.node_name}/{self.name}" if self.node else self.name


def logs(session: str, options: argparse.Namespace) -> int:
    """Runs the command.

    Args:
        session: The directory of the node that is asked.
        options: `name` (or None), `follow`, `json` and `timeout` (seconds).

    Returns:
        The exit status.
    """
    from sooner._cli.command import _print_json, _warn_silent  # start-up: 22.0 ms

    snapshot = Snapshot(session, FILES, timeout=options.timeout, everywhere=True)
    _warn_silent(snapshot)
    found = _local(session) + _others(snapshot)
    if options.name is None:
        rows = [
            {"file": log.name, "bytes": log.size, "node": snapshot.name_of(log.node or _own(snapshot))} for log in found
        ]
        columns = ("file", "bytes", "node") if len(snapshot.told) > 1 else ("file", "bytes")
        if options.json:
            _print_json(rows)
        else:
            print(text.table(rows, columns, text.width()) if rows else "no worker has printed anything")
        return 0
    chosen = [log for log in found if options.name in log.name]
    if not chosen:
        names = ", ".join(log.title for log in found) or "none"
        print(f"sooner: no log's name contains {options.name}; logs are: {names}", file=sys.stderr)
        return _NOT_FOUND
    reader = _Reader(session, chosen, options.timeout)
    if options.json:
        texts = dict.fromkeys(chosen, "")
        for log, piece in reader.rest():
            texts[log] += piece
        _print_json({log.title: read for log, read in texts.items()})
        return 0
    _show(reader, options.follow)
    return 0


def _own(snapshot: Snapshot) -> str:
    return str(snapshot.node["node"])


def _local(session: str) -> list[_Log]:
    directory = os.path.join(session, "logs")
    names = sorted(os.listdir(directory))
    return [_Log("", "", name, os.path.getsize(os.path.join(directory, name))) for name in names]


def _others(snapshot: Snapshot) -> list[_Log]:
    others = {node: told for node, told in snapshot.told.items() if told is not snapshot.node}
    return [
        _Log(node, snapshot.name_of(node), row["file"].removeprefix("logs/"), row["bytes"])
        for node, told in others.items()
        for row in told["files"] or ()
    ]


class _Reader:
    """Reads log files, each time from where it stopped."""

    def __init__(self, session: str, chosen: list[_Log], timeout: float) -> None:
        self._session = session
        self._timeout = timeout
        self._offsets = dict.fromkeys(chosen, 0)
        decoder = codecs.getincrementaldecoder("utf-8")
        # A piece may end within a character.
        self._decoders: dict[_Log, Any] = {log: decoder("replace") for log in chosen}

    def rest(self) -> Iterator[tuple[_Log, str]]:
        """Text up to the sizes that the files had when they were listed, and perhaps more.

        It ends even if more is printed all the time.
        """
        while True:
            behind = [log for log, offset in self._offsets.items() if offset < log.size]
            pieces = self.more()
            yield from pieces.items()
            if not any(log in pieces for log in behind):
                return

    def more(self) -> dict[_Log, str]:
        """New text since the last time: one piece of each file of other nodes.

        Raises:
            FileNotFoundError: The session is over.
        """
        found = {}
        for log, offset in self._offsets.items():
            if not log.node:
                path = os.path.join(self._session, "logs", log.name)
                data, self._offsets[log] = _read(path, offset)
                if data:
                    found[log] = self._decoders[log].decode(data)
        return found | self._more_of_others()

    def _more_of_others(self) -> dict[_Log, str]:
        wanted = {(log.node, f"logs/{log.name}"): log for log in self._offsets if log.node}
        if not wanted:
            return {}
        parts = [(node, file, self._offsets[log]) for (node, file), log in wanted.items()]
        snapshot = Snapshot(self._session, FILES, timeout=self._timeout, everywhere=True, parts=parts)
        found = {}
        for node, told in snapshot.told.items():
            for row in told["files"] or ():
                if (log := wanted.get((node, row["file"]))) and row["text"]:
                    self._offsets[log] = row["offset"] + len(row["text"])
                    found[log] = self._decoders[log].decode(row["text"])
        return found


def _read(path: str, offset: int) -> tuple[bytes, int]:
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size < offset:
            # The file was replaced by a new one.
            offset = 0
        file.seek(offset)
        data = file.read()
    return data, offset + len(data)


def _show(reader: _Reader, follow: bool) -> None:
    try:
        while True:
            for _, piece in reader.rest():
                sys.stdout.write(piece)
            sys.stdout.flush()
            if not follow:
                return
            time.sleep(_FOLLOW_SECONDS)
    except FileNotFoundError:
        # The session is over.
        return
