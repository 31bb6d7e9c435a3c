#!/usr/bin/env bash
# Fuzzes every target of fuzz/ for FUZZ_SECONDS each, FUZZ_JOBS at a time; FUZZ_TARGETS names some of them. The folder is laid
# out for cargo-fuzz, which is not needed here: building it takes half as long as to fuzz. The compiler is the pinned one. Nearly
# all that the targets run is safe Rust, so they are not slowed down by a sanitizer unless one is asked for:
# FUZZ_SANITIZER=address.
set -eu -o pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
seconds=${FUZZ_SECONDS:-30}
jobs=${FUZZ_JOBS:-2}
sanitizer=${FUZZ_SANITIZER:-none}
readonly out=$PWD/fuzz/target
# Where the binaries are looked for below.
unset CARGO_TARGET_DIR
mkdir -p "$out"

missing() { # what, how to get it
  printf 'missing: %s\n    %s\n' "$1" "$2" >&2
  exit 1
}

expected() { echo "$1" >&2; exit 1; }
[[ $seconds =~ ^[1-9][0-9]*$ ]] || expected "FUZZ_SECONDS=$seconds: expected a whole number of seconds, 1 at least"
[[ $jobs =~ ^[1-9][0-9]*$ ]] || expected "FUZZ_JOBS=$jobs: expected a whole number, 1 at least"
[[ $sanitizer =~ ^(none|address)$ ]] || expected "FUZZ_SANITIZER=$sanitizer: expected none or address"
host=$(rustc -vV | sed -n 's/^host: //p')
runtime=("$(rustc --print sysroot)/lib/rustlib/$host/lib"/librustc-*rt.asan.a)
[ "$sanitizer" = none ] || [ -e "${runtime[0]}" ] || missing "the address sanitizer of $(rustc --version) for $host" \
  "the toolchains of rustup have it: rustup toolchain install (in this directory)"
command -v c++ >/dev/null 2>&1 || missing "a C++ compiler (no \"c++\" on the PATH; libFuzzer is built with it)" \
  "install it with: sudo apt-get install build-essential"

# What `cargo fuzz build` gives the compiler: libFuzzer's counters at every edge, and what is compared. Several units: on few cores
# a build in one takes longer than they run slower.
flags="--cfg fuzzing -Cdebug-assertions -Ccodegen-units=16 -Cpasses=sancov-module -Cllvm-args=-simplifycfg-branch-fold-threshold=0"
for what in level=4 inline-8bit-counters pc-table trace-compares stack-depth; do flags+=" -Cllvm-args=-sanitizer-coverage-$what"; done
# Sanitizers are not stable: the compiler, which has them, is told that they may be used.
[ "$sanitizer" = none ] || { flags+=" -Zsanitizer=$sanitizer" && export RUSTC_BOOTSTRAP=1; }
targets=${FUZZ_TARGETS:-$(sed -n 's/^name = "\([a-z_]*\)"$/\1/p' fuzz/Cargo.toml)}
[ -n "$targets" ] || { echo "fuzz/ declares no targets" >&2; exit 1; }

echo "==> building the fuzz targets"
start=$SECONDS
# With a target, so that build scripts and macros are built without the flags.
RUSTFLAGS="$flags" "$cargo" build --locked --release --bins --manifest-path fuzz/Cargo.toml --target "$host" 2>"$out/build.log" ||
  { tail -60 "$out/build.log" >&2; exit 1; }
echo "built in $((SECONDS - start)) s"

# What the fuzzer begins with: the messages whose bytes the tests of sooner-wire hold.
rm -rf "$out/seeds"
mkdir -p "$out/seeds/frames"
SOONER_SEEDS=$out/seeds/frames "$cargo" test --quiet --locked --profile fast -p sooner-wire --lib message >"$out/seeds.log" 2>&1 ||
  { cat "$out/seeds.log" >&2; exit 1; }
# Targets that begin with a byte of their own take each message from several sides.
for target in line node nodes words worker; do
  mkdir -p "$out/seeds/$target"
  for frame in "$out/seeds/frames"/*; do
    for who in 0 1 2 3; do
      { printf '%b' "\\0$who"; cat "$frame"; } >"$out/seeds/$target/${frame##*/}.$who"
    done
  done
done
for target in hello routed; do cp -r "$out/seeds/frames" "$out/seeds/$target"; done

# One target; what libFuzzer says of every step is shown only when it found something.
one() {
  local target=$1 log=$out/$1.log seeds=()
  mkdir -p "fuzz/corpus/$target" "fuzz/artifacts/$target"
  [ ! -d "$out/seeds/$target" ] || seeds=("$out/seeds/$target")
  if ! ASAN_OPTIONS=detect_odr_violation=0 "$out/$host/release/$target" "fuzz/corpus/$target" "${seeds[@]}" \
    -max_total_time="$seconds" -max_len=8192 -timeout=20 -artifact_prefix="fuzz/artifacts/$target/" >"$log" 2>&1; then
    tail -60 "$log" >&2
    echo "$target: FOUND SOMETHING; all of it is in $log" >&2
    return 1
  fi
  echo "$target: $(grep -aE '^Done ' "$log" | tail -1), $(grep -aoE 'cov: [0-9]+' "$log" | tail -1), nothing found"
}
export -f one
export out host seconds
echo "==> fuzzing $(wc -w <<<"$targets") targets, $jobs at a time, for $seconds s each"
# shellcheck disable=SC2086  # a list of words
printf '%s\n' $targets | xargs -P "$jobs" -I{} bash -c 'one {}'
