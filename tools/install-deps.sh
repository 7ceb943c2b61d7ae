#!/bin/sh
# Installs what is missing of the Debian packages that iloader is built and tested with; does nothing where all are
# there. Needs root or sudo only where something is missing.
#
#     install-deps.sh build|test...
set -eu

build='gcc libc6-dev make pkg-config python3 scdoc libsystemd-dev libjson-c-dev libgcrypt20-dev libseccomp-dev libinih-dev'
# systemd is here for systemd-analyze, util-linux for unshare and nsenter.
test='libcmocka-dev clang libclang-rt-dev llvm clang-format clang-tidy mmdebstrap strace systemd util-linux'

packages=
for group in "$@"; do
        case $group in
        build) packages="$packages $build" ;;
        test) packages="$packages $test" ;;
        *)
                echo "usage: install-deps.sh build|test..." >&2
                exit 2
                ;;
        esac
done

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
        echo "install-deps.sh: not a Debian system; these packages' counterparts must be there:" $packages >&2
        exit 0
fi

installed() {
        case $(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null) in
        installed) return 0 ;;
        *) return 1 ;;
        esac
}

missing=
for package in $packages; do
        installed "$package" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

as_root=
if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
                echo "install-deps.sh: these packages are missing:$missing; install them as root, or install sudo" >&2
                exit 1
        fi
        as_root=sudo
fi

apt() {
        $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 "$@"
}

echo "installing:$missing" >&2
# Package lists may be missing altogether (minimal images) or too old to name a file that is still there.
# shellcheck disable=SC2086
if ! apt install --no-install-recommends --yes $missing >/dev/null 2>&1; then
        apt update
        apt install --no-install-recommends --yes $missing >/dev/null
fi
