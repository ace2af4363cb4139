# shellcheck shell=bash
# What the scripts share: what a machine needs is there, or is installed, and it is said what is installed.
# Sourced, not run. In: nothing but the machine. Out: an engine that answers, the bus's and the store's programs under
# target/parts, the tools that build and test. Not here: anything about meshes.
set -euo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
parts=$repository/target/parts

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

fail() {
    say "$*"
    exit 1
}

# usage TEXT ARGUMENT: TEXT on stdout and done when help is asked for; on stderr and 2 for an argument that is not known.
usage() {
    case $2 in
    -h | --help)
        printf '%s\n' "$1"
        exit 0
        ;;
    *)
        printf '%s: unknown argument %s\n%s\n' "${0##*/}" "$2" "$1" >&2
        exit 2
        ;;
    esac
}

# This machine in Go's words: linux/amd64.
system_of_this_machine() {
    case $(uname -m) in
    x86_64) echo linux/amd64 ;;
    aarch64) echo linux/arm64 ;;
    *) fail "no mesh runs on a $(uname -m): expected x86_64 or aarch64" ;;
    esac
}

need_root() {
    [ "$(id -u)" = 0 ] || fail "$* needs root: run this as root"
}

# install PACKAGE...: Debian's packages, with a fresh list of them where the old one does not have them.
install_packages() {
    need_root "installing $*"
    command -v apt-get >/dev/null || fail "$* is missing and there is no apt-get to install it with: install it by hand"
    say "installing Debian's packages $* (apt-get install)"
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -y -q "$@" >&2 || { apt-get update -q >&2 && apt-get install -y -q "$@" >&2; } ||
        fail "apt-get could not install $*: see above"
}

ensure_rust() {
    command -v cargo >/dev/null || fail "cargo is missing: install Rust $(rust_version) or newer (https://rustup.rs)"
    command -v cc >/dev/null || install_packages gcc libc6-dev
}

rust_version() { sed -n 's/^rust-version = "\(.*\)"/\1/p' "$repository/Cargo.toml"; }

ensure_nextest() {
    if ! cargo nextest --version >/dev/null 2>&1; then
        say "installing cargo-nextest, the test runner (cargo install)"
        cargo install cargo-nextest --locked >&2
    fi
}

engine_answers() { command -v docker >/dev/null && timeout 10 docker version >/dev/null 2>&1; }

# A container engine answers where docker looks for one. One that somebody named is not ours to start.
ensure_engine() {
    if engine_answers; then return; fi
    if [ -n "${DOCKER_HOST:-}${DOCKER_CONTEXT:-}" ]; then
        fail "no container engine answers at DOCKER_HOST=${DOCKER_HOST:-} DOCKER_CONTEXT=${DOCKER_CONTEXT:-}:" \
            "start it, or unset them to use this machine's own"
    fi
    if ! command -v dockerd >/dev/null || ! command -v docker >/dev/null; then install_packages docker.io; fi
    if engine_answers; then return; fi
    need_root "starting the container engine"
    if [ -d /run/systemd/system ]; then
        say "starting the container engine (systemctl start docker)"
        systemctl start docker || fail "docker does not start: see journalctl -u docker"
    else
        local log=$repository/target/dockerd.log
        mkdir -p "${log%/*}"
        say "starting the container engine (dockerd, detached; its log is ${log#"$repository"/})"
        setsid dockerd </dev/null >"$log" 2>&1 &
        local daemon=$!
    fi
    local deadline=$((SECONDS + 30))
    until engine_answers; do
        if [ -n "${daemon:-}" ] && ! kill -0 "$daemon" 2>/dev/null; then
            tail -n 20 "$log" >&2
            fail "the container engine ended at once: see above"
        fi
        if [ $SECONDS -ge $deadline ]; then
            [ -z "${log:-}" ] || tail -n 20 "$log" >&2
            fail "the container engine did not answer within 30 s"
        fi
        sleep 0.2
    done
}

# unpack PART PACKAGE...: Debian's packages unpacked into the folder PART of target/parts, never installed, so that no
# service of theirs starts.
unpack() {
    local part=$1 scratch
    shift
    command -v dpkg-deb >/dev/null || fail "$part is taken from Debian's packages and there is no dpkg-deb:" \
        "put it into $parts/$part by hand"
    say "unpacking Debian's packages $* into ${parts#"$repository"/}/$part (apt-get download; nothing is installed)"
    mkdir -p "$parts"
    scratch=$(mktemp -d "$parts/.$part.XXXXXX")
    (
        # Joined by &&, for bash does not end at a failure on the left of ||.
        download() { apt-get -q -o APT::Sandbox::User=root download "$@" >&2; }
        refresh() { need_root "apt-get update" && apt-get -q update >&2; }
        cd "$scratch" && { download "$@" || { refresh && download "$@"; }; } && mkdir unpacked &&
            for package in ./*.deb; do dpkg-deb -x "$package" unpacked || exit 1; done
    ) || {
        rm -rf "$scratch"
        fail "Debian's packages $* could not be had: see above"
    }
    rm -rf "${parts:?}/$part"
    mv "$scratch/unpacked" "$parts/$part"
    rm -rf "$scratch"
}

# ensure_part PACKAGE PROGRAM: a program of a Debian package that needs nothing else.
ensure_part() {
    local package=$1 program=$parts/$1/$2
    if "$program" --version >/dev/null 2>&1; then return; fi
    unpack "$package" "$package"
    "$program" --version >/dev/null || fail "$program does not run on this machine"
}

ensure_parts() {
    ensure_part nats-server usr/sbin/nats-server
    ensure_part docker-registry usr/bin/docker-registry
}

skopeo_runs() {
    LD_LIBRARY_PATH=$(printf %s: "$parts"/skopeo/usr/lib/*-linux-gnu) "$parts/skopeo/usr/bin/skopeo" --version >/dev/null 2>&1
}

# The libraries that packages need, as far as they are not installed.
missing_libraries_of() {
    local library
    apt-cache depends --important "$@" | sed -n 's/^ *Depends: \(lib[^ ]*\)$/\1/p' | sort -u |
        while read -r library; do
            case $(dpkg-query -W -f '${Status}' "$library" 2>/dev/null) in
            *" installed") ;;
            *) echo "$library" ;;
            esac
        done
}

# Programs that are not ours, which the tests and benchmarks hold bundles against: skopeo and pigz from Debian, the
# ORAS client of Python in an environment of its own.
# What a test needs that has a machine of its own: an engine's daemon to start, and namespaces to start it in.
ensure_machines() {
    command -v dockerd >/dev/null && command -v docker >/dev/null || install_packages docker.io
    command -v ip >/dev/null || install_packages iproute2
    command -v unshare >/dev/null && command -v mount >/dev/null || install_packages util-linux mount
}

ensure_interop() {
    local oras=$parts/oras libraries further=()
    if ! skopeo_runs; then
        apt-cache show skopeo >/dev/null 2>&1 || { need_root "apt-get update" && apt-get -q update >&2; }
        mapfile -t libraries < <(missing_libraries_of skopeo)
        [ ${#libraries[@]} = 0 ] || mapfile -t further < <(missing_libraries_of "${libraries[@]}")
        unpack skopeo skopeo "${libraries[@]}" "${further[@]}"
        skopeo_runs || fail "$parts/skopeo/usr/bin/skopeo does not run on this machine"
    fi
    ensure_part pigz usr/bin/pigz
    if ! "$oras/bin/python" -c 'import oras' >/dev/null 2>&1; then
        say "installing Python's oras into ${oras#"$repository"/} (pip)"
        rm -rf "$oras"
        python3 -m venv "$oras" >&2 || { install_packages python3-venv && python3 -m venv "$oras" >&2; } ||
            fail "no environment for Python could be made: see above"
        "$oras/bin/python" -m pip install --quiet --disable-pip-version-check oras >&2 ||
            fail "pip could not install oras: see above"
    fi
}

# The folder of a system's static binaries, below the repository: target/mesh/linux-amd64.
binaries_of() { echo "target/mesh/${1/\//-}"; }

# build_static SYSTEM FOLDER PACKAGE:PROGRAM...: static release binaries, put into FOLDER.
build_static() {
    local system=$1 into=$2 architecture target linker variable built one packages=() programs=()
    shift 2
    case $system in
    linux/amd64) architecture=x86_64 ;;
    linux/arm64) architecture=aarch64 ;;
    *) fail "no binaries are built for $system: expected linux/amd64 or linux/arm64" ;;
    esac
    ensure_rust
    target=$architecture-unknown-linux-gnu
    compgen -G "$(rustc --print target-libdir --target "$target")/libstd-*" >/dev/null ||
        fail "Rust's library for $target is not installed: rustup target add $target"
    if [ "$architecture" != "$(uname -m)" ]; then
        linker=$architecture-linux-gnu-gcc
        command -v "$linker" >/dev/null ||
            fail "no linker for $target: install $linker (Debian: gcc-${architecture/_/-}-linux-gnu)"
        variable=${target^^}
        export "CARGO_TARGET_${variable//-/_}_LINKER=$linker"
    fi
    for one in "$@"; do
        packages+=(-p "${one%:*}")
        programs+=(--bin "${one#*:}")
    done
    cd "$repository"
    # RUSTFLAGS stands in for what .cargo/config.toml says, so its flag comes here once more.
    # --target keeps build scripts and macros, which run here, from being made static too.
    RUSTFLAGS='-C target-feature=+crt-static --cfg getrandom_backend="linux_getrandom"' \
        cargo build --release --locked --target "$target" "${packages[@]}" "${programs[@]}"
    built=${CARGO_TARGET_DIR:-target}/$target/release
    mkdir -p "$into"
    for one in "${@#*:}"; do
        # Only what changed, and by a rename: a program that runs keeps its file.
        if ! cmp -s "$built/$one" "$into/$one"; then
            install -m 0755 "$built/$one" "$into/.$one.new"
            mv "$into/.$one.new" "$into/$one"
        fi
    done
    say "$into: ${*#*:}"
}
