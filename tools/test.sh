#!/usr/bin/env bash
# Runs the Rust tests, then the Python suite, and repeats the closing lines of both at the end.
# Both run even when the first fails: one run shows everything that is broken.
#   test.sh <python of the environment> [pytest arguments]
set -u -o pipefail
python=${1:?which python?}
shift
cargo=${CARGO:-cargo}
# An outer bound for a hang that even the watchdog of a single test does not see.
suite_seconds_max=${SUITE_SECONDS_MAX:-2700}

# Tests mostly wait, for processes and for time limits: more of them at a time than there are cores. Files stay together, as
# they share sessions.
side_by_side=(-n "${PYTEST_PROCESSES:-3}" --dist loadfile)

logs=$(mktemp -d)
waiting=
trap '[ -z "$waiting" ] || kill "$waiting" 2>/dev/null; rm -rf "$logs"' EXIT

suite=(timeout --kill-after=10 --signal=INT "$suite_seconds_max"
  "$python" -m pytest -rsfE --durations=25 --durations-min=4)
# What mostly waits runs beside the Rust tests, which take all there is of the machine; unless some of the tests are asked for.
if [ $# -eq 0 ]; then
  # The shell has what runs behind its back ignore Ctrl-C, which is among what is tested.
  env --default-signal=INT,QUIT "${suite[@]}" -m waits >"$logs/python-waiting" 2>&1 &
  waiting=$!
fi

# The doorway crate links against an interpreter only when it is loaded by one: pytest covers it.
echo "==> cargo test (all crates but sooner-python)"
timeout --kill-after=10 "$suite_seconds_max" \
  "$cargo" test --locked --profile fast --workspace --exclude sooner-python --no-fail-fast 2>&1 | tee "$logs/rust"
rust=$?

pytest=0
if [ -n "$waiting" ]; then
  echo "==> pytest, what mostly waits"
  wait "$waiting" || pytest=$?
  waiting=
  cat "$logs/python-waiting"
  echo "==> pytest"
  "${suite[@]}" "${side_by_side[@]}" -m "not waits" 2>&1 | tee "$logs/python" || pytest=$?
else
  echo "==> pytest"
  "${suite[@]}" "$@" 2>&1 | tee "$logs/python" || pytest=$?
fi

echo "==> closing lines"
awk '/^test result:/ { runs++; passed += $4; failed += $6; ignored += $8 }
  END { printf "rust:   %d passed, %d failed, %d ignored in %d test programs\n", passed, failed, ignored, runs }' \
  "$logs/rust"
for part in "$logs"/python*; do
  printf '%s: %s\n' "${part##*/}" "$(grep -E '(passed|failed|error|no tests ran).* in [0-9.]+s' "$part" | tail -n 1 | sed 's/^=* *//; s/ *=*$//')"
done
grep -hE '^SKIPPED' "$logs"/python* || echo "skipped: none"
# Which tests failed, and with what words, for who sees only the end.
sed -n 's/^test \(.*\) \.\.\. FAILED$/FAILED rust: \1/p' "$logs/rust"
awk '/^---- .* stdout ----$/ { left = 6 } left-- > 0' "$logs/rust" | cut -c 1-300 | head -n 60
grep -hE '^(FAILED|ERROR) ' "$logs"/python* | cut -c 1-300 | head -n 60
[ "$rust" -eq 124 ] && echo "rust: stopped after $suite_seconds_max s"
[ "$pytest" -eq 124 ] && echo "python: stopped after $suite_seconds_max s"
[ "$rust" -eq 0 ] || echo "rust: FAILED (exit code $rust)"
[ "$pytest" -eq 0 ] || echo "python: FAILED (exit code $pytest)"
[ "$rust" -eq 0 ] && [ "$pytest" -eq 0 ]
