#!/usr/bin/env bash
# Checks what the build needs from the machine, and names the command that installs what is missing.
#   doctor.sh python <interpreter>    an interpreter of 3.11 or later with the venv module
#   doctor.sh rust                    cargo, the pinned compiler or a later one, and a C compiler
set -u
cd "$(dirname "$0")/.." || exit 1
findings=0

missing() { # what, how to get it
  printf 'missing: %s\n    install it with: %s\n' "$1" "$2" >&2
  findings=$((findings + 1))
}

check_python() {
  local python=$1 found
  if ! found=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null); then
    missing "Python 3.11 or later (\"$python\" does not run)" \
      "sudo apt-get install python3 python3-venv, or name another one: make PYTHON=/path/to/python3"
    return
  fi
  if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    missing "Python 3.11 or later (\"$python\" is $found)" \
      "sudo apt-get install python3.11 python3.11-venv, then: make PYTHON=python3.11"
    return
  fi
  # Debian ships venv without ensurepip unless python3-venv is there: look for both.
  if ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
    missing "the venv module of Python $found" "sudo apt-get install python$found-venv"
  fi
}

check_rust() {
  local cargo=${CARGO:-cargo} wanted found
  wanted=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
  local rustup="curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh"
  if ! command -v "$cargo" >/dev/null 2>&1; then
    missing "a Rust toolchain ($wanted or later; no \"$cargo\" on the PATH)" "$rustup"
  elif ! found=$("$cargo" --version 2>/dev/null | cut -d' ' -f2) || [ -z "$found" ]; then
    missing "Rust $wanted (\"$cargo\" does not run here)" "rustup toolchain install $wanted"
  elif [ "$(printf '%s\n' "$wanted" "$found" | sort -V | head -n 1)" != "$wanted" ]; then
    missing "Rust $wanted or later (\"$cargo\" is $found)" "$rustup"
  fi
  if ! command -v cc >/dev/null 2>&1; then
    missing "a C compiler (no \"cc\" on the PATH; Rust links with it)" "sudo apt-get install build-essential"
  fi
}

case "${1:-}" in
  python) check_python "${2:?which interpreter?}" ;;
  rust) check_rust ;;
  *)
    echo "usage: tools/doctor.sh python <interpreter> | rust" >&2
    exit 2
    ;;
esac
[ "$findings" -eq 0 ]
