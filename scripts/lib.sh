# shellcheck shell=bash
# Shared by the scripts beside this file: where things are, and how steps are run and shown.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# shellcheck disable=SC2034 # used by the scripts that read this file
{
    CACHE=${ETCD_OPERATOR_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/etcd-operator}
    TARGET=${CARGO_TARGET_DIR:-$PWD/target}
    MUSL=x86_64-unknown-linux-musl
    IMAGE=etcd-operator.local/etcd-operator
    NAMESPACE=etcd-operator-system
}

say() { printf '\033[1m%s\033[0m\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }
now() { date +%s.%N; }
# Seconds since $1, with one digit.
since() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.1f", b - a }'; }

need_root() { [ "$(id -u)" = 0 ] || die "$1 needs root: it starts containers, network namespaces and mounts"; }

. scripts/steps.sh

# A Debian package for a program that is missing: `need_program musl-gcc musl-tools`.
need_program() {
    local program=$1 package=$2
    ! command -v "$program" >/dev/null || return 0
    [ "$(id -u)" = 0 ] || die "there is no $program: install the Debian package $package, or run this once as root"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package"
}

# What a build needs beyond Rust itself.
prepare() {
    local toolchain
    toolchain=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
    if ! rustup run "$toolchain" true 2>/dev/null; then
        rustup toolchain install "$toolchain" --profile minimal --component clippy --component rustfmt
    fi
    # Without network this must not fail when everything is there.
    if ! rustup target list --toolchain "$toolchain" --installed | grep -x "$MUSL" >/dev/null; then
        rustup target add --toolchain "$toolchain" "$MUSL"
    fi
    need_program musl-gcc musl-tools
}

# Always with --workspace, here and in the tests: for a single package Cargo would pick other features of the same
# dependencies and compile most of them again.
build_lab() { cargo build --quiet --workspace --bin lab; }

lab() { "$TARGET/debug/lab" "$@"; }

# KUBECONFIG, kubectl, helm and the rest.
enter_lab() { eval "$(lab env)"; }
