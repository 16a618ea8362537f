#!/usr/bin/env bash
# Every parser of users' files and lines under libFuzzer: no crash, no hang, no leak, no invalid input accepted.
# Usage: libfuzzer_test.sh BUILD_FOLDER [SECONDS [SEED]]     seconds for all parsers together (60), seed (1)
# SPDX-License-Identifier: Apache-2.0
#
# Exit 77 without clang 16 or later, which has libFuzzer and C++20's source_location; in CI (SAMESUM_STRICT) that is a
# failure. Interesting inputs stay in BUILD_FOLDER/libfuzzer/corpus; the next run starts with them.
set -euo pipefail

build=$(readlink -f "${1:?usage: libfuzzer_test.sh BUILD_FOLDER [SECONDS [SEED]]}")
seconds=${2:-60}
seed=${3:-1}
source=$(readlink -f "$(dirname "$(readlink -f "$0")")/../..")
folder=$build/libfuzzer
at_a_time=2
mkdir -p "$folder"

clang=
for name in clang++ clang++-{30..16}; do
    printf '%s\n' '#include <source_location>' 'int line = std::source_location::current().line();' \
        'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
        "$name" -std=c++20 -fsanitize=fuzzer,address,undefined -x c++ - -o "$folder/probe" 2>/dev/null || continue
    clang=$name
    break
done
if [[ -z $clang ]]; then
    echo "no clang 16 or later with libFuzzer: expected packages clang-16 and libclang-rt-16-dev"
    [[ -z ${SAMESUM_STRICT:-} ]] && exit 77
    exit 1
fi

cmake -S "$source" -B "$folder" -G Ninja -DCMAKE_CXX_COMPILER="$clang" -DSAMESUM_LIBFUZZER=ON \
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-O1 -DSAMESUM_GPU=OFF -DSAMESUM_PROOFS=OFF -DSAMESUM_FUZZ=OFF \
    -DSAMESUM_PYTHON=OFF -DBUILD_TESTING=OFF >"$folder/cmake.log"
ninja -C "$folder" fuzz_parsers >"$folder/build.log" || { tail -40 "$folder/build.log" && exit 1; }
rm -rf "$folder/seeds" && mkdir -p "$folder/seeds" "$folder/found"
SAMESUM_SEEDS=$folder/seeds "$build/fuzz_parsers_test" --run_test=good_input_is_kept --log_level=error >/dev/null 2>&1

mapfile -t parsers < <(ls "$folder/seeds")
each=$((seconds * at_a_time / ${#parsers[@]}))
fuzz_one() { # PARSER
    local log=$folder/$1.log
    mkdir -p "$folder/corpus/$1"
    if ! SAMESUM_PARSER=$1 "$folder/fuzz_parsers" "$folder/corpus/$1" "$folder/seeds/$1" \
        -max_total_time=$((each > 0 ? each : 1)) -timeout=10 -rss_limit_mb=2048 -artifact_prefix="$folder/found/$1-" \
        -seed="$seed" -print_final_stats=1 >"$log" 2>&1; then
        tail -30 "$log"
        echo "$1: FAILED; replay: SAMESUM_PARSER=$1 $folder/fuzz_parsers INPUT, with one of these as INPUT:"
        ls -t "$folder/found/$1"-*
        return 1
    fi
    sed -n "s/^Done \([0-9]*\) runs in \([0-9]*\) second.*/$1: \1 runs in \2 s/p" "$log"
}
export -f fuzz_one
export folder each seed
printf '%s\n' "${parsers[@]}" | xargs -P "$at_a_time" -I{} bash -c 'fuzz_one {}'
