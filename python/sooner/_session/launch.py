"""How workers of a driver are started: on its own machine, and by nodes on others.

On the driver's machine a job's template is a program with the driver's interpreter and paths. A node on
another machine has neither: it gets the places where the driver looks for modules and the modules to import,
and starts its own interpreter (`docs/adr/0030`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence

# Places of modules, modules to import, whether lines of submission are recorded, whether `site` is needed,
# options of the interpreter, values of `sys.flags`.
Setup = tuple[list[str], list[str], bool, bool, list[str], list[tuple[str, int]]]
# Program, code, the standard library, other places, whether `site` is needed.
Interpreter = tuple[str, str, list[str], list[str], bool]

# A program's arguments of more characters than this are sent with the code instead.
_ARGUMENTS_LENGTH_MAX = 32 << 10
# The largest argument that is used (bytes): the kernel's limit is 128 KiB.
_ARGUMENT_BYTES = 64 << 10

# The template of a driver elsewhere. Its arguments are those of `Interpreter::command` in `sooner-runtime`.
_GUEST = (
    "import sys; a = sys.argv; sys.argv = ['-c', a[-1]]; n = 5 + int(a[2]); m = n + int(a[3]); sys.path[:] = a[m:-1]; "
    "sys.prefix, sys.exec_prefix = {prefix!r}; from sooner._engine.template import main; "
    "main(a[5:n], a[1] == '1', a[-1], a[n:m], True, named=a[4])"
)


def template_command(preload: Sequence[str], record_call_sites: bool) -> list[str]:
    """Program and arguments of a template on the driver's machine; the node's directory is to be appended."""
    setup = {
        "path": places(),
        "prefix": (sys.prefix, sys.exec_prefix),
        "preload": list(preload),
        "sites": record_call_sites,
        "arguments": arguments(),
        "flags": tuple(sys.flags),
        "script": _script(),
    }
    said, more = _as_arguments(repr(setup))
    code = (
        f"import sys; s = {said}; d = sys.argv[-1]; sys.argv[:] = s['arguments'] or ['-c', d]; "
        "sys.path[:] = s['path']; sys.prefix, sys.exec_prefix = s['prefix']; "
        "from sooner._engine.template import main; "
        "main(s['preload'], s['sites'], d, flags=s['flags'], script=s['script'])"
    )
    # `site` takes most of an interpreter's start. The template sets `sys.flags` to this process's afterwards.
    flags = ["-P"] if _needs_site() else ["-S", "-P"]
    return [sys.executable, *flags, *_interpreter_flags(), "-c", code, *more]


def _script() -> tuple[str | None, bool]:
    """The file of the program's `__main__`, if it has one, and whether it was run as a script (no module)."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    if not isinstance(file, str) or not os.path.isfile(file):
        return None, False
    return os.path.abspath(file), getattr(main, "__spec__", None) is None


# Flags of the interpreter with their letters, which are repeated to the flag's value.
_LETTERS = {
    "dont_write_bytecode": "B",
    "optimize": "O",
    "bytes_warning": "b",
    "quiet": "q",
    "verbose": "v",
    "debug": "d",
}


def _interpreter_flags() -> list[str]:
    """Options of this interpreter for another one, without those that are in the environment."""
    flags = [*_letters(), *_isolation()]
    for name, value in sys._xoptions.items():
        flags += ["-X", name if value is True else f"{name}={value}"]
    return [*flags, *_warnings()]


def _letters() -> list[str]:
    return [
        f"-{letter * int(getattr(sys.flags, name))}" for name, letter in _LETTERS.items() if getattr(sys.flags, name)
    ]


def _isolation() -> list[str]:
    """Options by which this interpreter ignores its environment or the user's directory."""
    if sys.flags.isolated:
        return ["-I"]
    return ["-E"] * sys.flags.ignore_environment + ["-s"] * sys.flags.no_user_site


def _warnings() -> list[str]:
    warnings = list(sys.warnoptions)
    if sys.flags.dev_mode and warnings[:1] == ["default"]:
        # The development mode adds "default" by itself.
        del warnings[0]
    return [f"-W{option}" for option in warnings]


def _options_elsewhere() -> list[str]:
    """Options of this interpreter for one on another machine, which has another environment."""
    options = [*_letters(), *_isolation(), *_warnings()]
    names = dict(sys._xoptions)
    names["utf8"] = str(int(sys.flags.utf8_mode))
    if sys.flags.dev_mode:
        names["dev"] = True
    return [*options, *(f"-X{name}" if value is True else f"-X{name}={value}" for name, value in names.items())]


def flag_names() -> tuple[str, ...]:
    """Names of the fields of `sys.flags` in this version of Python, in order."""
    names: tuple[str, ...] = type(sys.flags).__match_args__
    return names


def _as_arguments(text: str) -> tuple[str, list[str]]:
    """An expression with the value of the expression `text`, and the arguments that it needs.

    The kernel takes arguments of 128 KiB, and of some megabytes together. A `sys.path` may be longer than one
    argument.
    """
    if len(text.encode("utf-8", "surrogateescape")) <= _ARGUMENT_BYTES:
        return text, []
    import base64  # start-up: 1.3 ms
    import zlib  # start-up: 0.5 ms

    packed = base64.b64encode(zlib.compress(text.encode("utf-8", "surrogateescape"))).decode("ascii")
    parts = [packed[at : at + _ARGUMENT_BYTES] for at in range(0, len(packed), _ARGUMENT_BYTES)]
    code = "eval(zlib.decompress(base64.b64decode(''.join(sys.argv[1:-1]))).decode('utf-8', 'surrogateescape'))"
    # The template has imported neither `zlib` nor `base64`.
    return f"(lambda zlib, base64: {code})(__import__('zlib'), __import__('base64'))", parts


def template_setup(preload: Sequence[str], record_call_sites: bool) -> Setup:
    """The setup of a template on another machine. An empty place stands for its own standard library."""
    found: list[str] = []
    for entry in places():
        place = "" if _is_standard(entry) else entry
        if place not in found:
            found.append(place)
    flags = [(name, int(getattr(sys.flags, name))) for name in flag_names()]
    return found, list(preload), record_call_sites, _needs_site(), _options_elsewhere(), flags


def interpreter() -> Interpreter:
    """How a node that this process starts runs templates of drivers elsewhere."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    # Without the safe path, the program's own directory is the first entry: of no use to other drivers.
    given = entries(sys.path[0 if sys.flags.safe_path else 1 :])
    absolute = [place for place in map(_absolute, given) if place]
    standard = [place for place in absolute if _is_standard(place)]
    others = [place for place in (*absolute, package) if not _is_standard(place)]
    code = _GUEST.format(prefix=(sys.prefix, sys.exec_prefix))
    return sys.executable, code, standard, list(dict.fromkeys(others)), _needs_site()


def arguments() -> list[str]:
    """The program's arguments, for modules that read them on import. Long ones are sent with the code."""
    given = [str(argument) for argument in sys.argv]
    return given if sum(map(len, given)) <= _ARGUMENTS_LENGTH_MAX else given[:1]


def entries(path: Iterable[object]) -> list[str]:
    """The entries of a `sys.path` that the import system uses: it ignores all but text, such as a `Path`."""
    return [str.__str__(entry) for entry in path if isinstance(entry, str)]


def places() -> list[str]:
    """Where this process looks for modules. An empty entry becomes the working directory, or is left out."""
    there = directory()
    return [entry or there for entry in entries(sys.path) if entry or there]


def directory() -> str:
    """The working directory; empty if it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def _absolute(entry: str) -> str:
    """The absolute path of an entry; empty for one relative to a directory that was removed."""
    if os.path.isabs(entry):
        return os.path.abspath(entry)
    there = directory()
    return os.path.normpath(os.path.join(there, entry)) if entry and there else ""


def _is_standard(entry: str) -> bool:
    library = os.path.dirname(os.__file__)
    archive = f"python{sys.version_info.major}{sys.version_info.minor}.zip"
    return entry in (library, os.path.join(library, "lib-dynload")) or os.path.basename(entry) == archive


def _needs_site() -> bool:
    """Whether import hooks of editable installs are needed to find modules."""
    return any("editable" in f"{type(finder).__module__}{finder!r}" for finder in sys.meta_path)
