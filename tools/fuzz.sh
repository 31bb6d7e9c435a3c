#!/usr/bin/env bash
# Fuzzes every target of fuzz/ for FUZZ_SECONDS. Needs cargo-fuzz and a nightly compiler.
set -eu -o pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
seconds=${FUZZ_SECONDS:-30}

if ! "$cargo" fuzz --version >/dev/null 2>&1; then
  echo "missing: cargo-fuzz" >&2
  echo "    install it with: rustup toolchain install nightly && cargo install --locked cargo-fuzz" >&2
  exit 1
fi
if ! "$cargo" +nightly --version >/dev/null 2>&1; then
  echo "missing: a nightly compiler (the sanitizers need it)" >&2
  echo "    install it with: rustup toolchain install nightly" >&2
  exit 1
fi
targets=$("$cargo" +nightly fuzz list)
[ -n "$targets" ] || { echo "fuzz/ declares no targets" >&2; exit 1; }
mkdir -p fuzz/target
for target in $targets; do
  echo "==> fuzzing $target for $seconds s"
  # What libFuzzer says of every step is shown only when it found something.
  log=fuzz/target/$target.log
  if ! "$cargo" +nightly fuzz run "$target" -- -max_total_time="$seconds" >"$log" 2>&1; then
    tail -60 "$log" >&2
    exit 1
  fi
  grep -aE '^Done ' "$log"
done
