#!/usr/bin/env bash
# The set-up by the samesum script on machines made of stand-ins: what it installs, says, and mends after being killed.
# SPDX-License-Identifier: Apache-2.0
#
# setup_test.sh [BUILD]: with a build folder the installed form is tried, too. The stand-ins for apt, pip, cmake and
# ninja note each call in $fake/calls, and kill the script that called them where $fake/kill-in-NAME tells them to.
set -uo pipefail

source=$(dirname "$(dirname "$(readlink -f "$0")")")
build=${1:-}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failures=0 checks=0
fake=
checkout=

check() { # what must hold, a command that tells
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

stand_in() { # name, body
    printf '#!/bin/bash\nfake=%q\necho "%s $*" >>"$fake/calls"\n%s\n' "$fake" "$1" "$2" >"$fake/bin/$1"
    chmod +x "$fake/bin/$1"
}

# A machine with nothing of what samesum needs, a user who is root, and a checkout.
new_machine() { # its name
    machine=$1
    fake=$scratch/$1
    checkout=$fake/checkout
    mkdir -p "$fake/bin" "$checkout"
    local tool
    for tool in bash env true cat dirname readlink mkdir rm mv sed awk grep head tail cut paste flock date nproc sleep \
        rmdir touch cp chmod ln; do
        ln -s "$(type -P "$tool")" "$fake/bin/$tool"
    done
    cp "$source/samesum" "$source/CMakePresets.json" "$source/CMakeLists.txt" "$checkout"
    : >"$fake/installed"
    : >"$fake/calls"
    : >"$fake/unknown-to-apt"
    local die='if [[ -e $fake/kill-in-NAME ]]; then rm "$fake/kill-in-NAME"; kill -9 $PPID; exit 1; fi'
    echo 0 >"$fake/uid"
    stand_in id 'cat "$fake/uid"'
    stand_in sudo '[[ -e $fake/may-sudo ]] || exit 1; shift; exec "$@"'
    stand_in dpkg ''
    stand_in dpkg-query 'shift 3; for name in "$@"; do ! grep -qx "$name" "$fake/installed" || echo "ii $name"; done'
    stand_in apt-cache '! grep -qx "$2" "$fake/unknown-to-apt"'
    stand_in apt-get '[[ " $* " == *" install "* ]] || exit 0
'"${die//NAME/apt-get}"'
for name in "$@"; do
    [[ $name == -* ]] || echo "$name" >>"$fake/installed"
    tool=${name%-build}
    case $tool in g++ | cmake | git | ninja) ln -sf "$fake/spare/$tool" "$fake/bin/$tool" ;; esac
done'
    stand_in python3 '[[ $1 == -m && $2 == venv ]] || exit 0
mkdir -p "$3/bin"; cp "$fake/spare/venv-python" "$3/bin/python"'
    mkdir "$fake/spare"
    mv "$fake/bin" "$fake/used"
    mkdir "$fake/bin"
    stand_in g++ ''
    stand_in git ''
    stand_in venv-python "${die//NAME/venv-python}"'; [[ ! -e $fake/no-network ]] || { echo "no network"; exit 1; }'
    stand_in cmake "${die//NAME/cmake}"'; mkdir -p "build/$2"; touch "build/$2/build.ninja"
echo "-- fuzz/ is left out: because"'
    stand_in ninja '
echo "[0/1] Re-checking globbed directories..."
mkdir "$fake/busy" 2>/dev/null || echo OVERLAP >>"$fake/calls"; sleep 0.1; rmdir "$fake/busy"
[[ ! -e $fake/broken ]] || { printf "[1/1] CXX a.o\nFAILED: a.o\na.cpp:1: error: broken\n"; exit 1; }
for name in model proofs fuzz impl; do
    printf "#!/bin/bash\necho %s \"\$@\"\nexit 1\n" $name >"$2/samesum-$name"; chmod +x "$2/samesum-$name"
done
echo "ninja: no work to do."'
    mv "$fake/bin"/* "$fake/spare"
    rmdir "$fake/bin"
    mv "$fake/used" "$fake/bin"
}

call() { # words of a samesum command
    : >"$fake/calls"
    # The outer braces swallow what bash says of a killed child.
    {
        env -i PATH="$fake/bin" "${with[@]}" "$checkout/samesum" "$@" >"$fake/out" 2>"$fake/err"
        status=$?
    } 2>/dev/null
}
with=()

new_machine fresh
call order show --ranks 4
check "packages are installed" called '^apt-get .*install .*g\+\+ cmake ninja-build git .*libboost-test-dev'
check "RapidCheck too, where apt has it" called '^apt-get .*install .*librapidcheck-dev'
check "and Python's headers" called '^apt-get .*install .*python3-dev'
check "no browser, which is large" never_called '^apt-get .*install .*chromium'
check "it says so" says 'installing g++'
check "data on stdout is the program's alone" prints 'model order show --ranks 4'
check "the program's exit code is passed on" exits 1
check "order needs no wheels" never_called '^venv-python'
check "order builds samesum-model alone" called '^ninja -C [^ ]+ samesum-model$'
check "what order does not need is not missed" bash -c "! grep -q 'left out' '$fake/err'"
call order show
check "a second call is quiet" is_silent
check "a second call neither installs nor configures" never_called '^(apt|dpkg|cmake|venv)'
call verify
check "verify fetches Z3" called '^venv-python -m pip install .*z3-solver=='
check "and what the Python package is built with" called '^venv-python -m pip install .*nanobind==.* numpy=='
check "what is left out is said" says 'fuzz/ is left out: because'
check "verify builds all programs" called '^ninja -C [^ ]+ programs$'
check "new wheels mean configuring again" called '^cmake'
call verify
check "a second verify is quiet" is_silent
with=(CXX=other-compiler)
call order show
check "another compiler means configuring again" called '^cmake'
with=()
call order show
touch "$fake/broken"
call order show
check "a failing build cannot answer" exits 3
check "the compiler is quoted" says 'a.cpp:1: error: broken'
check "the log is named" says 'build/release/build.log'

new_machine strict
with=(SAMESUM_STRICT=1)
call test
check "where nothing may be skipped a browser is installed" called '^apt-get .*install .*chromium chromium-driver'
with=()

new_machine asked-for
call prove --jobs 1
check "no second solver that nobody asked for" never_called '^venv-python .*cvc5'
call prove addition_commutes --cross-check cvc5
check "a second solver when it is asked for" called '^venv-python -m pip install .*cvc5=='
call prove addition_commutes --cross-check cvc5
check "once" never_called '^venv-python'

new_machine other-user
echo 1000 >"$fake/uid"
call verify
check "no rights: the input is what is wrong" exits 2
check "no rights: one line" says_one_line
check "no rights: the line to run" says 'sudo apt-get install -y --no-install-recommends g++ cmake'
check "no rights: nothing is tried" never_called '^apt-get'
touch "$fake/may-sudo"
call verify
check "passwordless sudo is used" called '^sudo -n env DEBIAN_FRONTEND=noninteractive apt-get'
check "it runs" prints 'proofs verify'

new_machine without-rapidcheck
echo librapidcheck-dev >"$fake/unknown-to-apt"
call verify
check "it runs without RapidCheck" prints 'proofs verify'
check "apt is not asked for what it lacks" never_called '^apt-get .*install.*rapidcheck'
call verify
check "and is quiet about it the second time" is_silent

for victim in apt-get venv-python cmake; do
    new_machine "killed-in-$victim"
    touch "$fake/kill-in-$victim"
    call verify
    check "the script was killed" exits 137
    call verify
    check "the second call mends it" prints 'proofs verify'
    [[ $victim != apt-get ]] || check "dpkg finishes what it began" called '^dpkg --configure -a'
    call verify
    check "the third is quiet" is_silent
done

new_machine without-network
touch "$fake/no-network"
call verify
check "it cannot be decided here" exits 3
check "pip's log is named" says 'build/pip.log'
call order show
check "what needs no wheels still runs" prints 'model order show'

new_machine busy
call order show
: >"$fake/calls"
for _ in 1 2 3 4; do env -i PATH="$fake/bin" "$checkout/samesum" verify >/dev/null 2>>"$fake/err" & done
wait
check "calls at the same time build one after another" never_called OVERLAP
check "and fetch the wheels once" [ "$(grep -c '^venv-python -m pip' "$fake/calls")" = 1 ]

new_machine wrong-words
call
check "no command: help, but wrong" exits 2
call nonsense --flag
check "unknown command: wrong" exits 2
check "unknown command: one line with the choices" says_one_line
check "unknown command: the choices" says 'unknown command '\''nonsense'\''; one of: verify, test, order'
call --help
check "help is right" exits 0
with=(SAMESUM_PRESET=nonsense)
call verify
check "an unknown preset is wrong" exits 2
check "and in one line" says_one_line
with=()
check "nothing is set up for any of these" [ ! -e "$checkout/build" ]

if [[ -n $build ]]; then
    new_machine installed
    cmake --install "$build" --prefix "$fake/prefix" >"$fake/calls" 2>&1
    check "cmake installs" [ $? = 0 ]
    checkout=$fake/prefix/bin
    call order --help
    check "an installed samesum runs" grep -q 'samesum order COMMAND' "$fake/out"
    call --version
    check "it knows its versions" grep -q '^fmt ' "$fake/out"
    call prove --help
    check "its solver is found" exits 0
    call test
    check "it has no tests" exits 2
    call order nonsense
    check "exit codes are passed on" exits 2
    check "it builds nothing" [ ! -e "$fake/prefix/bin/build" ]
fi

((checks > 0 && failures == 0)) && echo "$checks checks of the set-up passed"
