#!/usr/bin/env bash
# Changes sooner-protocol in one place after another and sees whether its tests notice. MUTANTS_SHARD=k/n takes every n-th
# change, from the k-th on. Fails when fewer than 80 % are noticed. Further arguments go to cargo-mutants.
set -eu -o pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
shard=${MUTANTS_SHARD:-0/30}
readonly percent_min=80 out=target/mutants

if ! "$cargo" mutants --version >/dev/null 2>&1; then
  echo "missing: cargo-mutants" >&2
  echo "    install it with: cargo install --locked cargo-mutants" >&2
  exit 1
fi
# Builds of a changed crate take most of the time: they are neither optimised nor for debuggers.
export CARGO_PROFILE_DEV_OPT_LEVEL=0 CARGO_PROFILE_DEV_DEBUG=0
unset CARGO_TARGET_DIR
code=0
"$cargo" mutants --package sooner-protocol --shard "$shard" --sharding round-robin --colors never \
  --output "$out" "$@" || code=$?
# 2: some were not noticed; 3: some ended in a time limit.
case $code in
  0 | 2 | 3) ;;
  *) exit "$code" ;;
esac
lines() { cat "$out/mutants.out/$1.txt" | wc -l; }
killed=$(($(lines caught) + $(lines timeout)))
all=$((killed + $(lines missed)))
[ "$all" -gt 0 ] || { echo "no mutant of shard $shard compiles" >&2; exit 1; }
echo "$killed of $all mutants killed ($((100 * killed / all)) %); the others are in $out/mutants.out/missed.txt"
[ $((100 * killed)) -ge $((percent_min * all)) ] || { echo "fewer than $percent_min %" >&2; exit 1; }
