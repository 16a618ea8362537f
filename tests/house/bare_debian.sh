#!/usr/bin/env bash
# A clone of samesum in a bare Debian or Ubuntu: what setup_test.sh cannot try without root. Prints one row a case.
# SPDX-License-Identifier: Apache-2.0
#
# bare_debian.sh CHROOT [quick], as root. CHROOT is copied, not changed; it is made by, for example,
#   debootstrap --variant=minbase trixie CHROOT
# The cases follow one another in one copy: each finds what the former left. quick ends before the first build.
# SAMESUM_CHROOT_FILES names files of the host that the network needs (certificates, settings of apt), which are copied;
# variables for proxies, certificates and pip are passed on.
set -euo pipefail

bare=$(readlink -f "${1:?usage: bare_debian.sh CHROOT [quick]}")
quick=${2:-}
source=$(dirname "$(dirname "$(dirname "$(readlink -f "$0")")")")
scratch=$(mktemp -d "${TMPDIR:-/var/tmp}/samesum-bare-XXXXXX")
trap 'rm -rf --one-file-system "$scratch"' EXIT
root=$scratch/system
# A path as users have them.
folder="/srv/same sum ä"
failures=0

cp -a "$bare" "$root"
cp /etc/resolv.conf "$root/etc/resolv.conf"
for file in ${SAMESUM_CHROOT_FILES:-}; do
    mkdir -p "$root$(dirname "$file")"
    cp -L "$file" "$root$file"
done
git clone -q "$source" "$root$folder"
chroot "$root" useradd --create-home someone
# shellcheck disable=SC1091
system=$(source "$root/etc/os-release" && echo "$PRETTY_NAME")

passed_on=()
while IFS='=' read -r name value; do passed_on+=("$name=$value"); done < <(
    env | grep -E '^(https?_proxy|no_proxy|PIP_[A-Z_]+|SSL_CERT_FILE|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE)=' || true
)

# Runs a line of shell words in the copy's checkout. `with` holds words for unshare, `first` a line that is run before,
# as root and outside of the copy. Mounts and processes end with the call.
with=() first=: user=root
inside() { # line
    unshare --mount --propagation private --pid --fork --kill-child "${with[@]}" env root="$root" folder="$folder" \
        bash -c 'set -e
            mount -t proc proc "$root/proc"
            mount --rbind /dev "$root/dev"
            mount -t tmpfs tmpfs "$root/dev/shm"
            cd "$root$folder"
            '"$first"'
            exec chroot "$root" "$@"' - \
        env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "${passed_on[@]}" \
        setpriv --reuid="$user" --regid="$user" --init-groups bash -c "cd '$folder' && $1" \
        >"$scratch/out" 2>"$scratch/err" </dev/null
}

try() { # case, expected exit, line
    local begin=$SECONDS code=0 verdict='as expected'
    inside "$3" || code=$?
    if [[ $code != "$2" ]]; then
        verdict="expected $2"
        failures=$((failures + 1))
        tail -n 20 "$scratch/out" "$scratch/err" >&2
    fi
    printf '%-32s | %-38s | %4d s | exit %d, %s | %s\n' "$system" "$1" "$((SECONDS - begin))" "$code" "$verdict" \
        "$(tail -n 1 "$scratch/err" | cut -c 1-150)"
}

sum="./samesum sum eval --dtype float32 --values '1 2 3'"

user=someone
chroot "$root" chown -R someone "$folder"
try "a user, no packages, no sudo" 2 "$sum"
user=root
chroot "$root" chown -R root "$folder"
rm -rf "$root$folder/build"
try "--help before any set-up" 0 "./samesum order show --help"
with=(--net)
try "no network" 3 "$sum"
with=()
first='mkdir -p build && mount -t tmpfs -o size=1m tmpfs build'
try "full disk (packages are installed)" 3 "$sum"
if [[ $quick == quick ]]; then exit $((failures > 0)); fi

first='mkdir -p build && mount -t tmpfs -o noexec tmpfs build'
try "build/ mounted noexec" 3 "$sum"
first=:
try "killed after 3 s" 137 "timeout -s KILL 3 $sum"
try "ended by TERM after 20 s" 143 "$sum & sleep 20; kill \$!; wait \$!"
try "after both" 0 "$sum"
try "built: at once" 0 "timeout 20 $sum"
user=someone
try "built by root, run by a user" 0 "timeout 20 $sum"
try "built by root, more wanted by a user" 3 "./samesum verify"
user=root
first='mount --bind "$PWD" "$PWD" && mount -o remount,bind,ro "$PWD"'
try "read-only checkout" 0 "timeout 20 $sum"
first=:
try "renamed checkout" 0 "mv '$folder' /srv/renamed && cd /srv/renamed && $sum && mv /srv/renamed '$folder'"
try "verify" 0 "./samesum verify"
try "test" 0 "./samesum test"
exit $((failures > 0))
