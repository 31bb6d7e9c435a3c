"""How sooner's objects look in a notebook: small tables. All text from users is escaped."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Any

from sooner import _sooner

if TYPE_CHECKING:
    from sooner.actor import ActorClass, ActorHandle
    from sooner.context import SoonerContext
    from sooner.remote_function import RemoteFunction

_CHARS_MAX = 300
_METHODS_MAX = 30


def context_html(context: SoonerContext) -> str:
    """A session: its address, its resources and its state."""
    rows = [("address", context.get("address", "")), ("node", context.get("node_id", ""))]
    if _runs(context.get("node_id")):
        free = _sooner.resources(True)
        rows += [(f"resource {name}", _amount(name, free, total)) for name, total in _sooner.resources(False).items()]
    else:
        rows.append(("state", "ended"))
    rows.append(("directory", context.get("session_dir", "")))
    rows.append(("versions", f"sooner {context.sooner_version}, Python {context.python_version}"))
    return _table("sooner session", rows)


def ref_html(ref: _sooner.ObjectRef[Any]) -> str:
    """A reference: whether its value is there. Does not fetch it."""
    if not _sooner.is_running() or ref.job_id() != _sooner.identity()[2]:
        state = "of a session that has ended"
    else:
        state = "ready" if _sooner.is_ready(ref) else "pending"
    return _table("ObjectRef", [("id", ref.hex()), ("state", state), ("owner", ref.owner_address())])


def actor_html(handle: ActorHandle[Any]) -> str:
    """A handle: class, id and what can be called."""
    info = handle._info
    methods = [name for name in info.methods if not name.startswith("_")]
    rows = [("class", info.class_name), ("id", handle._actor_id), ("methods", _some(methods))]
    return _table("Actor", rows)


def function_html(function: RemoteFunction[Any, Any]) -> str:
    """A remote function: how it is called and with which options it runs."""
    rows = [("call", f"{function.__name__}.remote{_signature(function._function)}"), *_options(function._options)]
    return _table("RemoteFunction", rows, function.__doc__)


def class_html(cls: ActorClass[Any]) -> str:
    """An actor class: how an actor is made, what it can do, and with which options."""
    methods = [name for name in cls._info.methods if not name.startswith("_")]
    rows = [
        ("call", f"{cls.__name__}.remote{_signature(cls._cls)}"),
        ("methods", _some(methods)),
        *_options(cls._options),
    ]
    return _table("ActorClass", rows, cls.__doc__)


def _runs(node: Any) -> bool:
    return _sooner.is_running() and _sooner.identity()[1] == node


def _amount(name: str, free: dict[str, float], total: float) -> str:
    left = free.get(name, 0.0)
    if "memory" in name:
        return f"{left / 2**30:.1f} of {total / 2**30:.1f} GiB free"
    return f"{left:g} of {total:g} free"


def _signature(function: Any) -> str:
    try:
        return str(inspect.signature(function))
    except (TypeError, ValueError):
        return "(...)"


def _options(options: dict[str, Any]) -> list[tuple[str, str]]:
    given = [f"{name}={value!r}" for name, value in options.items() if value is not None]
    return [("options", ", ".join(given))] if given else []


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _METHODS_MAX} more" if len(names) > _METHODS_MAX else ""
    return ", ".join(names[:_METHODS_MAX]) + more


def _table(title: str, rows: Iterable[tuple[str, Any]], doc: str | None = None) -> str:
    first = (doc or "").strip().split("\n")[0]
    about = f"<div>{_cell(first)}</div>" if first else ""
    body = "".join(
        f'<tr><th style="text-align:left">{_cell(name)}</th><td style="text-align:left">{_cell(value)}</td></tr>'
        for name, value in rows
    )
    return f"<div><strong>{_cell(title)}</strong>{about}<table>{body}</table></div>"


def _cell(value: Any) -> str:
    text = str(value)
    return escape(text if len(text) <= _CHARS_MAX else text[:_CHARS_MAX] + "...")
