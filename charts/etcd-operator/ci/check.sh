#!/bin/sh
# Lints the chart and renders it with every value set in ci/: accepted/ must render, with the words after "# has:" and
# without those after "# lacks:"; refused/ must fail with the words after "# expect:". Needs nothing but helm; HELM names
# another one than that on PATH.
set -eu
cd "$(dirname "$0")/.."
helm=${HELM:-helm}
out=$(mktemp)
words=$(mktemp)
trap 'rm -f "$out" "$words"' EXIT

fail() {
    echo "chart: $1" >&2
    cat "$out" >&2
    exit 1
}

sets=0
for values in values.yaml ci/accepted/*.yaml; do
    sets=$((sets + 1))
    "$helm" lint --quiet --strict . --values "$values" >"$out" 2>&1 || fail "lint with $values"
    "$helm" template etcd-operator . --namespace etcd-operator-system --values "$values" >"$out" 2>&1 ||
        fail "$values does not render"
    # The image and what the operator believes to be its image are one.
    image=$(sed -n 's/^ *image: //p' "$out" | head -n 1)
    grep -A 1 'name: OPERATOR_IMAGE' "$out" | grep -qF "value: \"$image\"" ||
        fail "$values: OPERATOR_IMAGE is not $image"
    sed -n 's/^# has: //p' "$values" >"$words"
    while read -r line; do
        grep -qF -- "$line" "$out" || fail "$values renders without \"$line\""
    done <"$words"
    sed -n 's/^# lacks: //p' "$values" >"$words"
    while read -r line; do
        ! grep -qF -- "$line" "$out" || fail "$values renders \"$line\""
    done <"$words"
done

for values in ci/refused/*.yaml; do
    sets=$((sets + 1))
    reason=$(sed -n 's/^# expect: //p' "$values")
    if "$helm" template etcd-operator . --values "$values" >"$out" 2>&1; then
        fail "$values renders, but should not"
    fi
    grep -qF "$reason" "$out" || fail "$values is refused without saying \"$reason\""
done
echo "chart: lint and $sets value sets are as they should be"
