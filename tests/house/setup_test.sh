#!/usr/bin/env bash
# The samesum script's set-up on fake machines: what it installs, what it prints, and that it recovers when killed.
# SPDX-License-Identifier: Apache-2.0
#
# setup_test.sh [BUILD]: with a build folder the installed script is tested, too. The fakes of apt, pip, cmake and ninja
# log each call in $fake/calls; if $fake/kill-in-NAME exists, NAME kills the script that called it. Cases that need root
# (noexec mounts, full disks, real packages) are in bare_debian.sh.
set -uo pipefail

source=$(dirname "$(dirname "$(dirname "$(readlink -f "$0")")")")
build=${1:-}
scratch=$(mktemp -d)
trap 'chmod -R u+w "$scratch"; rm -rf "$scratch"' EXIT
failures=0 checks=0
fake=
checkout=

check() { # name of the check, a command that succeeds if it holds
    checks=$((checks + 1))
    if ! "${@:2}"; then
        failures=$((failures + 1))
        printf 'FAILED in "%s": %s\n' "$machine" "$1" >&2
        sed 's/^/    stderr: /' "$fake/err" >&2
        sed 's/^/    call: /' "$fake/calls" >&2
    fi
}
says() { grep -qF -- "$1" "$fake/err"; }
is_silent() { [[ ! -s $fake/err ]]; }
says_one_line() { [[ $(wc -l <"$fake/err") == 1 ]]; }
called() { grep -qE -- "$1" "$fake/calls"; }
never_called() { ! called "$1"; }
exits() { [[ $status == "$1" ]]; }
prints() { [[ $(<"$fake/out") == "$1" ]]; }

fake_program() { # name, body
    printf '#!/bin/bash\nfake=%q\necho "%s $*" >>"$fake/calls"\n%s\n' "$fake" "$1" "$2" >"$fake/bin/$1"
    chmod +x "$fake/bin/$1"
}

# A machine without any package that samesum needs, with root as user and a checkout.
new_machine() { # name
    machine=$1
    fake=$scratch/$1
    # A path as users have them.
    checkout="$fake/check out ä"
    mkdir -p "$fake/bin" "$checkout"
    local tool
    for tool in bash env true cat dirname readlink mkdir rm mv sed awk grep head tail cut paste flock date nproc sleep \
        rmdir touch cp chmod ln find stat sort uniq kill tee; do
        ln -s "$(type -P "$tool")" "$fake/bin/$tool"
    done
    cp "$source/samesum" "$source/CMakePresets.json" "$source/CMakeLists.txt" "$checkout"
    mkdir "$checkout"/{model,impl,proofs,fuzz}
    touch "$checkout/model/main.cpp"
    : >"$fake/installed"
    : >"$fake/calls"
    : >"$fake/err"
    : >"$fake/unknown-to-apt"
    local die='if [[ -e $fake/kill-in-NAME ]]; then rm "$fake/kill-in-NAME"; kill -9 "$(<"$fake/pid")"; exit 1; fi'
    echo 0 >"$fake/uid"
    fake_program id 'cat "$fake/uid"'
    fake_program sudo '[[ -e $fake/may-sudo ]] || exit 1; shift; exec "$@"'
    fake_program dpkg ''
    fake_program dpkg-query 'shift 3
for name in "$@"; do ! grep -qx "$name" "$fake/installed" || echo "ii $name"; done'
    fake_program apt-cache '! grep -qx "$2" "$fake/unknown-to-apt"'
    fake_program apt-get '[[ ! -e $fake/no-network-for-apt ]] || { echo "E: Failed to fetch"; exit 100; }
[[ " $* " == *" install "* ]] || exit 0
'"${die//NAME/apt-get}"'
for name in "$@"; do
    [[ $name == -* ]] || echo "$name" >>"$fake/installed"
    tool=${name%-build}
    case $tool in g++ | cmake | git | ninja) ln -sf "$fake/spare/$tool" "$fake/bin/$tool" ;; esac
    [[ $tool != cmake ]] || ln -sf "$fake/spare/ctest" "$fake/bin/ctest"
done'
    fake_program python3 '[[ $1 == -m && $2 == venv ]] || exit 0
mkdir -p "$3/bin"; cp "$fake/spare/venv-python" "$3/bin/python"'
    mkdir "$fake/spare"
    mv "$fake/bin" "$fake/used"
    mkdir "$fake/bin"
    fake_program g++ ''
    fake_program git ''
    fake_program venv-python "${die//NAME/venv-python}"'; [[ ! -e $fake/no-network ]] || { echo "no network"; exit 1; }'
    # It caches the folder, and RapidCheck where that is found.
    fake_program cmake '[[ $1 != --version ]] || { echo "cmake version $(cat "$fake/cmake-version")"; exit 0; }
'"${die//NAME/cmake}"'
[[ ! -e $fake/no-fmt ]] || { echo "  missing: fmt; expected these packages: libfmt-dev"; exit 1; }
mkdir -p "build/$2"; touch "build/$2/build.ninja"
{
    echo "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD"
    [[ ! -e $fake/prefix/lib/librapidcheck.a ]] || echo "RAPIDCHECK_LIBRARY:FILEPATH=$fake/prefix/lib/librapidcheck.a"
} >"build/$2/CMakeCache.txt"
echo "-- fuzz/ is left out: because"'
    echo 3.25.1 >"$fake/cmake-version"
    fake_program ninja '
echo "[0/1] Re-checking globbed directories..."
mkdir "$fake/busy" 2>/dev/null || echo OVERLAP >>"$fake/calls"; sleep 0.1; rmdir "$fake/busy"
[[ ! -e $fake/broken ]] || { printf "[1/1] CXX a.o\nFAILED: a.o\na.cpp:1: error: broken\n"; exit 1; }
[[ ! -e $fake/ninja-error ]] || { echo "ninja: fatal: no space left on device"; exit 1; }
if [[ -e $fake/slow && (! -e $fake/slow-target || $(<"$fake/slow-target") == "$3") ]]; then
    echo "[7/99] CXX slow.o"; touch "$fake/is-slow"
    while [[ -e $fake/slow ]]; do sleep 0.05; done
    echo "SLOW DONE" >>"$fake/calls"
fi
for name in model proofs fuzz impl; do
    printf "#!/bin/bash\necho %s \"\$@\"\nexit 1\n" $name >"$2/samesum-$name"; chmod +x "$2/samesum-$name"
done
echo "ninja: no work to do."'
    fake_program ctest ''
    mv "$fake/bin"/* "$fake/spare"
    rmdir "$fake/bin"
    mv "$fake/used" "$fake/bin"
}

other= # a prefix for the outputs of a second call
in_background() { # arguments of samesum
    echo "$BASHPID" >"$fake/pid"
    exec "${as_user[@]}" env -i PATH="$fake/bin" "${with[@]}" "$checkout/samesum" "$@" >"$fake/${other}out" \
        2>"$fake/${other}err"
}

wait_for() { # a command that succeeds within 5 s
    local i
    for ((i = 0; i < 250; ++i)); do
        if "$@"; then return 0; fi
        sleep 0.02
    done
    return 1
}

call() { # arguments of samesum
    : >"$fake/calls"
    # The outer braces discard bash's message about a killed child.
    {
        in_background "$@" &
        wait $!
        status=$?
    } 2>/dev/null
}
with=()
as_user=()

new_machine fresh
call order show --ranks 4
check "packages are installed" called '^apt-get .*install .*g\+\+ cmake ninja-build git .*libboost-test-dev'
check "RapidCheck is installed if apt has it" called '^apt-get .*install .*librapidcheck-dev'
check "Python's headers are installed" called '^apt-get .*install .*python3-dev'
check "no browser is installed: it is large" never_called '^apt-get .*install .*chromium'
check "the installation is announced" says 'installing g++'
check "stdout holds only the program's output" prints 'model order show --ranks 4'
check "the program's exit code is passed on" exits 1
check "order needs no wheels" never_called '^venv-python'
check "order builds samesum-model alone" called '^ninja -C .+ samesum-model$'
check "order does not report missing parts that it does not need" bash -c "! grep -q 'left out' '$fake/err'"
call order show
check "a second call prints nothing" is_silent
check "a second call starts nothing" never_called '.'
sleep 0.02
touch "$checkout/model/main.cpp"
call order show
check "a changed source is built" called '^ninja -C .+ samesum-model$'
call order show
check "once" never_called '.'
touch -d 2020-01-01 "$checkout/model/main.cpp"
call order show
check "a source that is replaced by an older one is looked at" called '^ninja'
sleep 0.02
rm "$checkout/model/main.cpp"
call order show
check "a removed source is noticed" called '^ninja'
rm "$checkout/build/release/samesum-model"
call order show
check "a removed program is built" called '^ninja'
call verify
check "verify fetches Z3" called '^venv-python -m pip install .*z3-solver=='
check "verify fetches the wheels for the Python package" called '^venv-python -m pip install .*nanobind==.* numpy=='
check "parts left out of the build are reported" says 'fuzz/ is left out: because'
check "verify builds all programs" called '^ninja -C .+ programs$'
check "new wheels cause a new configuration" called '^cmake --preset'
call verify
check "a second verify prints nothing" is_silent
with=(CXX=other-compiler)
call order show
check "another compiler causes a new configuration" called '^cmake --preset'
check "the change is named" says 'because these changed: CXX= CXX=other-compiler'
with=()
call order show
sleep 0.02
touch "$fake/broken" "$checkout/model/main.cpp"
call order show
check "a failing build is inconclusive" exits 3
check "the compiler's error is printed" says 'a.cpp:1: error: broken'
check "the log is named" says 'build/release/build.log'
rm "$fake/broken"
touch "$fake/ninja-error"
call order show
check "ninja's own error: inconclusive" exits 3
check "ninja's own error is shown" says 'ninja: fatal: no space left on device'
rm "$fake/ninja-error"
call order show
check "after that it runs" prints 'model order show'

new_machine strict
with=(SAMESUM_STRICT=1)
call test
check "with SAMESUM_STRICT a browser is installed" called '^apt-get .*install .*chromium chromium-driver'
with=()

new_machine second-solver
call prove --jobs 1
check "no second solver without --cross-check" never_called '^venv-python .*cvc5'
call prove addition_commutes --cross-check cvc5
check "--cross-check fetches the second solver" called '^venv-python -m pip install .*cvc5=='
call prove addition_commutes --cross-check cvc5
check "once" never_called '^venv-python'

new_machine other-user
echo 1000 >"$fake/uid"
call verify
check "no rights: exit 2" exits 2
check "no rights: one line" says_one_line
check "no rights: prints the command to run" says 'sudo apt-get install -y --no-install-recommends g++ cmake'
check "no rights: apt-get is not called" never_called '^apt-get'
touch "$fake/may-sudo"
call verify
check "passwordless sudo is used" called '^sudo -n env DEBIAN_FRONTEND=noninteractive apt-get'
check "verify runs" prints 'proofs verify'

new_machine without-rapidcheck
echo librapidcheck-dev >"$fake/unknown-to-apt"
call verify
check "verify runs without RapidCheck" prints 'proofs verify'
check "apt-get is not called for unknown packages" never_called '^apt-get .*install.*rapidcheck'
call verify
check "the second call prints nothing about it" is_silent

for victim in apt-get venv-python cmake; do
    new_machine "killed-in-$victim"
    touch "$fake/kill-in-$victim"
    call verify
    check "the script was killed" exits 137
    call verify
    check "the second call recovers" prints 'proofs verify'
    [[ $victim != apt-get ]] || check "dpkg completes the installation" called '^dpkg --configure -a'
    call verify
    check "the third call prints nothing" is_silent
done

new_machine without-network
touch "$fake/no-network"
call verify
check "without network: inconclusive" exits 3
check "pip's log is named" says 'build/pip.log'
call order show
check "a command without wheels still runs" prints 'model order show'

new_machine busy
call order show
: >"$fake/calls"
for _ in 1 2 3 4; do env -i PATH="$fake/bin" "$checkout/samesum" verify >/dev/null 2>>"$fake/err" & done
wait
check "concurrent calls build one after another" never_called OVERLAP
check "concurrent calls fetch the wheels once" [ "$(grep -c '^venv-python -m pip' "$fake/calls")" = 1 ]

new_machine second-terminal
touch "$fake/slow"
echo all >"$fake/slow-target"
other=other-
in_background test &
test_pid=$!
other=
wait_for [ -e "$fake/is-slow" ]
call teach
check "a built program runs while another call builds tests" prints 'model teach'
check "in silence" is_silent
check "while the other still builds" never_called 'SLOW DONE'
touch "$checkout/model/added.cpp"
in_background teach &
teach_pid=$!
wait_for grep -q 'waiting' "$fake/err"
check "with a changed source it waits" says 'waiting for another call of samesum: building in build/release'
rm "$fake/slow"
wait "$teach_pid"
check "then it builds and runs" prints 'model teach'
check "after the other" called 'SLOW DONE'
wait "$test_pid"
check "the other call is unharmed" called '^ctest'

new_machine progress-of-another
mkdir -p "$checkout/build"
printf '[12/99] CXX a.o\n' >"$fake/other.log"
{
    exec 9<>"$checkout/build/.lock"
    flock 9
    printf 'building in build/asan\n%s\n' "$fake/other.log" >"$checkout/build/.lock"
    touch "$fake/locked"
    while [[ ! -e $fake/unlock ]]; do sleep 0.05; done
} &
wait_for [ -e "$fake/locked" ]
in_background order show &
order_pid=$!
wait_for grep -q waiting "$fake/err"
check "what the other call does is said" says 'waiting for another call of samesum: building in build/asan'
{
    kill -TERM "$order_pid"
    wait "$order_pid"
    status=$?
} 2>/dev/null
check "TERM while waiting: 143" exits 143
touch "$fake/unlock"
wait

for signal in HUP:129 INT:130 TERM:143; do
    new_machine "stopped-by-${signal%:*}"
    touch "$fake/slow"
    set -m
    in_background order show &
    order_pid=$!
    set +m
    wait_for [ -e "$fake/is-slow" ]
    {
        kill "-${signal%:*}" "$order_pid"
        wait "$order_pid"
        status=$?
    } 2>/dev/null
    check "${signal%:*} to the script alone: exit ${signal#*:}" exits "${signal#*:}"
    check "it says so" says 'interrupted; the next call continues'
    rm "$fake/slow"
    sleep 0.15
    check "what it started is ended, too" never_called 'SLOW DONE'
    rmdir "$fake/busy" 2>/dev/null
    call order show
    check "the next call continues" prints 'model order show'
done

new_machine copied
call order show
cp -a "$checkout" "$fake/copy"
original=$checkout
checkout=$fake/copy
call order show
check "a copied checkout says that it is built again" says "was built from $original; it is built again here"
check "its own programs are built" called "^ninja -C $fake/copy/build/release samesum-model"
mv "$fake/copy" "$fake/renamed"
checkout=$fake/renamed
call order show
check "a renamed checkout says so" says "was built from $fake/copy; it is built again here"
call order show
check "once" is_silent
rm -rf "$fake/renamed/build"
ln -s "$original/build" "$fake/renamed/build"
call order show
check "another checkout's build folder is not touched: exit 3" exits 3
check "it is named" says "belongs to $original; expected a build folder of this checkout"
check "the original's program is still there" [ -x "$original/build/release/samesum-model" ]

new_machine installed-later
with=("CMAKE_PREFIX_PATH=$fake/prefix")
call order show
mkdir -p "$fake/prefix/include" "$fake/prefix/lib"
call order show
check "nothing new: nothing happens" never_called '.'
touch "$fake/prefix/include/rapidcheck.h" "$fake/prefix/lib/librapidcheck.a"
call order show
check "an installed library causes a new configuration" called '^cmake --preset'
check "it is named" says "because these changed: $fake/prefix/include/rapidcheck.h"
call order show
check "once" never_called '.'
rm "$fake/prefix/lib/librapidcheck.a"
call order show
check "a removed library causes a new configuration" called '^cmake --preset'
call order show
check "a removed one, too, once" never_called '.'

new_machine old-cmake
echo 3.18.4 >"$fake/cmake-version"
call order show
check "an old CMake: inconclusive" exits 3
check "an old CMake: its version and the expected one" says 'cmake 3.18.4 at '
check "an old CMake: expected" says 'expected 3.22 or later'

new_machine without-fmt
touch "$fake/no-fmt"
call order show
check "a missing library: inconclusive" exits 3
check "a missing library: its package" says 'samesum: missing: fmt; expected these packages: libfmt-dev'

for manager in dnf:fmt-devel zypper:fmt-devel pacman:nlohmann-json none:nlohmann_json; do
    new_machine "without-apt-${manager%:*}"
    rm "$fake/bin/apt-get" "$fake/bin/dpkg-query"
    [[ ${manager%:*} == none ]] || fake_program "${manager%:*}" ''
    call order show
    check "no apt: exit 2" exits 2
    check "no apt: one line" says_one_line
    check "no apt: packages of that system" says "${manager#*:}"
done

new_machine no-network-for-apt
touch "$fake/no-network-for-apt"
call order show
check "apt without network: inconclusive" exits 3
check "apt without network: packages" says 'no network; install these packages, then run samesum again: g++ cmake'

new_machine help-first
call order show --help
check "--help without a build: exit 0" exits 0
check "--help without a build: what the command does" grep -q 'the order in which a call adds' "$fake/out"
check "--help without a build sets nothing up" [ ! -e "$checkout/build" ]
call test --help
check "test --help: exit 0" exits 0
call order show
touch "$checkout/model/added.cpp"
call order show --help
check "--help with a build is the program's" prints 'model order show --help'
check "--help with a build sets nothing up" never_called '.'

new_machine not-executable
call order show
chmod -x "$checkout/build/release/samesum-model"
printf '#!/bin/bash\nexit 0\n' >"$fake/spare/ninja"
call order show
check "a program that may not be executed: inconclusive, not 126" exits 3
check "it is named" says 'samesum-model cannot be executed; expected a folder that is not mounted noexec'
printf 'of another machine\0' >"$checkout/build/release/samesum-model"
chmod +x "$checkout/build/release/samesum-model"
call order show
check "a program of another machine: inconclusive" exits 3

new_machine lock-not-writable
mkdir -p "$checkout/build/.lock"
call order show
check "a lock that cannot be opened: inconclusive" exits 3
check "its reason is one line" says_one_line
check "the lock is named" says 'build/.lock cannot be opened for writing'

new_machine full-disk
mkdir -p "$checkout/build"
ln -s /dev/full "$checkout/build/.packages"
call order show
check "a full disk: inconclusive" exits 3
check "a full disk: the reason" says 'No space left on device'

new_machine read-only
call order show
chmod -R a-w "$checkout/build"
chmod -R a+rX "$scratch"
# Root may write everywhere, so it becomes another user here.
if [[ $(id -u) == 0 ]]; then as_user=(setpriv --reuid=65534 --regid=65534 --clear-groups); fi
chmod a+w "$fake"/{calls,out,err,pid}
if [[ ${#as_user[@]} == 0 ]] || "${as_user[@]}" true 2>/dev/null; then
    call order show
    check "a built program runs where nothing is writable" prints 'model order show'
    with=(CXX=other-compiler)
    call order show
    check "whatever was chosen or installed since" prints 'model order show'
    with=()
    call verify
    check "one that is not built: inconclusive" exits 3
    check "the reason is one line" says_one_line
    check "who may write is said" says 'is not writable (it belongs to'
fi
as_user=()

new_machine wrong-arguments
call
check "no command: exit 2" exits 2
call nonsense --flag
check "unknown command: exit 2" exits 2
check "unknown command: one line" says_one_line
check "unknown command: the choices" says 'unknown command '\''nonsense'\'': expected one of verify, test, order'
call --help
check "--help: exit 0" exits 0
with=(SAMESUM_PRESET=nonsense)
call verify
check "unknown preset: exit 2" exits 2
check "unknown preset: one line" says_one_line
with=()
check "none of these sets anything up" [ ! -e "$checkout/build" ]

if [[ -n $build ]]; then
    new_machine installed
    cmake --install "$build" --prefix "$fake/prefix" >"$fake/calls" 2>&1
    check "cmake installs" [ $? = 0 ]
    checkout=$fake/prefix/bin
    call order --help
    check "an installed samesum runs" grep -q 'samesum order COMMAND' "$fake/out"
    call --version
    check "an installed samesum prints versions" grep -q '^fmt ' "$fake/out"
    call prove --help
    check "an installed samesum finds its solver" exits 0
    call test
    check "an installed samesum has no tests" exits 2
    call order nonsense
    check "an installed samesum passes exit codes on" exits 2
    check "an installed samesum builds nothing" [ ! -e "$fake/prefix/bin/build" ]
    DESTDIR=$fake/stage cmake --install "$build" --prefix "$fake/nowhere" >"$fake/calls" 2>&1
    check "DESTDIR stages the programs" [ -x "$fake/stage$fake/nowhere/libexec/samesum/samesum-model" ]
    check "DESTDIR stages the commit" [ -e "$fake/stage$fake/nowhere/libexec/samesum/commit" ]
    check "DESTDIR stages everything" [ ! -e "$fake/nowhere" ]
fi

((checks > 0 && failures == 0)) && echo "$checks checks of the set-up passed"
