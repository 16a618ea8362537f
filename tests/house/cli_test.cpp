// What a user gets for wrong input: one line that says what is wrong and what is expected, exit 2, nothing on stdout.
// SPDX-License-Identifier: Apache-2.0
//
// A new case is a row. The errors of the script `samesum` (unknown command, missing packages) are in setup_test.sh.
#define BOOST_TEST_MODULE cli
#include <fmt/format.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "tests/support/program.hpp"

namespace samesum {
namespace {

using testing::Outcome;
using testing::run;

/// The words that begin a command line of each command.
const std::vector<std::string> commands{
    "order calls",
    "order show",
    "order diff",
    "order check",
    "order invariance",
    "order enumerate",
    "order paths",
    "order lint",
    "sum eval",
    "sum witness",
    "sum expect",
    "sum reachable",
    "sum mask",
    "prove",
    "verify",
    "fuzz",
    "run",
    "reveal",
    "teach",
};

struct Row {
    std::string arguments;
    std::string error;    ///< part of the one line on stderr
    std::string input{};  ///< on stdin
};

const std::string reduce = "order show --ranks-per-node 1 --collective reduce ";
const std::string ring = reduce + "--algo ring --proto simple --ranks 4 --count 8 ";

const std::vector<Row> wrong{
    {"order nonsense", "unknown command 'nonsense'; one of: show, diff"},
    {"sum nonsense", "unknown command 'nonsense'; one of: eval, witness"},
    // Flags that are missing, incomplete, or of the wrong kind.
    {"order show", "--ranks is missing"},
    {reduce + "--ranks 4 --count", "the required argument for option '--count' is missing"},
    {reduce + "--ranks four --count 8", "('four') for option '--ranks' is invalid"},
    {reduce + "--rank 4 --count 8", "unrecognised option '--rank'"},
    {"order enumerate", "--ranks is missing"},
    {"sum reachable --values '1 2'", "--result is missing"},
    {"sum witness --tree '((0 1) 2)'", "--other is missing"},
    {"order paths", "expected the file that describes the collective"},
    {"order check", "expected a file of records"},
    {"order calls", "expected a file of calls"},
    // Values out of range.
    {reduce + "--ranks 0 --count 8", "--ranks 0: expected 1 to"},
    {reduce + "--ranks -4 --count 8", "--ranks -4: expected 1 to"},
    {reduce + "--ranks 4 --count -8", "--count '-8': expected a number up to 2^44"},
    {reduce + "--ranks 4 --count 99999999999999999999", "--count '99999999999999999999': expected a number up to 2^44"},
    {ring + "--root 4", "--root 4 is not a rank: expected 0 to 3"},
    {"order show --ranks 4 --ranks-per-node 3 --collective reduce --count 8", "2 nodes of 3 ranks"},
    {"order show --rings 0,1,2,2 --collective reduce --count 8", "rank 2 is named twice"},
    {"order show --rings '0,1,2,3;0,1' --collective reduce --count 8", "ring of channel 1"},
    {"order enumerate --ranks 0", "--ranks 0: expected 1 to 10"},
    {"sum witness --leaves 99", "--leaves 99: expected 3 to 6"},
    {"prove --timeout -1", "--timeout -1: expected seconds above 0"},
    {"prove --jobs 0", "--jobs 0: expected 1 or more"},
    {"verify --jobs 0", "--jobs 0: expected 1 or more"},
    {"verify --seed -1", "--seed -1: expected a number of 0 or more"},
    {"fuzz --cases -5", "--cases -5: expected a number of 0 or more"},
    {"fuzz --cases 0", "--cases 0: expected 1 or more"},
    {"fuzz --shard 4/4", "--shard '4/4': expected I/N with I below N, e.g. 0/4 .. 3/4"},
    {"run --ranks 0", "--ranks '0': expected a whole number from 1 to 1048576"},
    {"run --root 9 --ranks 4", "--root 9: expected 0 to 3"},
    {"run --fault NONSENSE", "unknown fault 'NONSENSE'; one of: none, root_is_owner"},
    {"order diff README.md", "README.md alone: expected two files that reveal --save wrote"},
    {"order diff README.md LICENSE", "README.md:1: "},
    {"run --by-node 3", "--by-node 3: expected a divisor of 4 ranks, or 0"},
    {"run --by-node 2 --scheme fixed_root",
     "--by-node: fixed_root cannot sum by node; expected --scheme exchange_ordered"},
    {"bench --ranks 1", "--ranks 1: a combine of one rank adds nothing; expected 2 or more"},
    {"bench -b 8X", "--begin '8X': expected bytes from 1 to 1024G"},
    {"bench -b 0", "--begin '0': expected bytes from 1 to 1024G"},
    {"bench -b 8M -e 8K", "--end is less than --begin: expected --begin or more"},
    {"bench -f 1", "--factor 1: expected 2 or more"},
    {"bench --scheme fastest", "unknown scheme 'fastest': expected one of: reduce_scatter"},
    {"bench --repetitions 0", "--repetitions 0: expected 1 or more"},
    {"bench --plan 1 --from README.md", "--plan '1': expected a whole number from 2 to 1000000"},
    {"bench --from README.md", "--from README.md: no JSON at byte 1: expected a file that bench --json wrote"},
    {"bench --from tests/golden/observed/h200x1-arithmetic.json", "not found: expected a file that bench --json wrote"},
    {"bench --from nowhere.json", "--from nowhere.json: cannot be read"},
    {"run --rows 63", "63 rows: expected a multiple of the 4 ranks, or --sizes"},
    {"run --sizes 1,2", "sizes '1,2': 2 ranks; expected 4, as many as the communicator has"},
    // Unknown names: the known ones are listed.
    {reduce + "--ranks 4 --count 8 --dtype float17", "unknown data type 'float17': expected one of: float64"},
    {"order show --ranks 4 --ranks-per-node 1 --collective redice --count 8",
     "unknown collective 'redice': expected one of: Reduce"},
    {ring + "--format jpeg", "--format 'jpeg': expected text, json, dot or svg"},
    {ring + "--nccl-version 1.0", "NCCL 1.0 is not modelled: expected 2.27 to 2.30"},
    {"order invariance --ranks 4 --ranks-per-node 1 --schemes nonsense",
     "unknown scheme 'nonsense': expected one of: reduce_scatter"},
    {"order lint --env /dev/null --want nonsense", "unknown invariance 'nonsense': expected one of: run-to-run"},
    {"sum eval --values '1 2' --rounding nonsense", "unknown rounding 'nonsense': expected one of: per_hop"},
    {"prove no_such_claim", "no obligation is called 'no_such_claim'"},
    {"prove --cross-check nonsense", "--cross-check 'nonsense': expected cvc5, bitwuzla"},
    {"verify no_such_claim", "unknown claim 'no_such_claim'"},
    {"verify --backend nonsense", "--backend 'nonsense': expected auto, model or nccl"},
    {"fuzz --backend nonsense", "--backend 'nonsense': expected one of: auto, model, nccl"},
    {"fuzz --property nonsense", "--property 'nonsense': no property with this name"},
    {"run --scheme nonsense", "unknown scheme 'nonsense': expected one of: reduce_scatter"},
    {"run --launcher pbs", "--launcher 'pbs': expected auto, none, torchrun, mpi or slurm"},
    {"fuzz --launcher pbs", "--launcher 'pbs': expected auto, none, torchrun, mpi or slurm"},
    {"verify --launcher pbs", "--launcher 'pbs': expected auto, none, torchrun, mpi or slurm"},
    {"reveal --launcher torchrun", "torchrun: RANK is not set: expected a number"},
    {"bench --launcher=slurm", "srun: SLURM_PROCID is not set: expected a number"},
    // Text that cannot be read.
    {"sum eval --values '1 x'", "'x' is not a number"},
    {"sum eval --values '1 2' --tree '((0 1'", "'((0 1' is not a tree: column 6"},
    {"sum eval --values '1 2' --tree '((0 1) 2)'", "adds 3 values: expected 2"},
    {"order enumerate --ranks 4 --values '1 2 3'", "has 3 values: expected 4"},
    {"fuzz --seed -7", "--seed '-7': expected a number below 2^64, a commit's hash, or one word"},
    {"fuzz --replay nonsense", "expected a name, then fields"},
    {"run --sizes 1,x", "'x' is not a number of rows"},
    {"reveal --calls nonsense", "call 'nonsense': expected e.g. ar:1000"},
    {"teach nonsense", "no lesson is called 'nonsense'; one of: addition, two_answers"},
    {"teach 13", "no lesson is called '13'"},
    {"teach addition ties", "too many words: expected LESSON"},
    {"teach addition --all", "LESSON, --all and --html FILE: expected one of them"},
    {"teach --answer 1", "--answer: expected a LESSON"},
    {"teach addition --answer", "the required argument for option '--answer' is missing"},
    {"teach addition --answer one", "'one' is not a number"},
    {"teach addition --answer '1 2'", "'1 2' has 2 values: expected 1"},
    {"teach ties --answer many", "'many': expected a whole number"},
    {"teach algorithms --answer '((0 1'", "'((0 1' is not a tree"},
    {"teach fixed_root --answer perhaps", "'perhaps': expected yes or no"},
    {"teach --values '1 2'", "--values goes with --html FILE"},
    {"teach --html x.html --values '1 x'", "'x' is not a number"},
    {"teach --html x.html --values 1", "--values: expected 2 values or more"},
    {"teach --html x.html --values '1 inf'", "--values: expected finite numbers"},
    {"teach --html x.html --dtype int8 --values '1 2'", "--dtype int8: --values go with bfloat16"},
    {"teach --html x.html --values '0.1 0.23 0.37 0.41 5.3 7.7 91 -3.3 1e4 77'", "have more than 40000 sums"},
    {"teach --html x.html --ranks 9", "--ranks 9: expected 3 to 8"},
    {"teach --html no/such/folder/x.html", "cannot write no/such/folder/x.html"},
    // Files that are not there, not files, or not what they should be.
    {"order check no/such/file", "cannot read no/such/file: No such file"},
    {"order check model", "model is a folder, not a file"},
    {"order check -", "not a JSON object", "{\"broken\n"},
    {"order check -", "field 'nranks' is missing", "{}\n"},
    {"order paths - --row 4", "not a JSON object", "[1, 2\n"},
    {"order calls no/such/file", "cannot read no/such/file: No such file"},
    {"order calls -", "-:1: no header; expected a file that SAMESUM_POLICY=observe wrote", "\n"},
    {"order calls -", "-:1: not a line of a call stream", "{\"samesum\n"},
    {"order calls -", "-:1: field 'format' is missing", "{\"samesum\": \"calls\"}\n"},
    {"order calls - --expect nonsense", "--expect 'nonsense': expected invariant"},
    {"order show --log no/such/file --collective reduce --count 8", "cannot read no/such/file"},
    {"order show --graph no/such/file --collective reduce --count 8", "cannot read no/such/file"},
    {"order lint --env no/such/file", "cannot read no/such/file"},
    {"sum mask no/such/file no/such/file", "cannot read no/such/file"},
    {"order enumerate --ranks 3 --json no/such/folder/file", "cannot write no/such/folder/file"},
};

/// Without RapidCheck or Z3 a program is not built; its rows are then skipped, with a message.
bool is_built(const std::string& arguments) {
    static std::set<std::string> said;
    const std::string word = arguments.substr(0, arguments.find(' '));
    const std::string program = word == "order" || word == "sum" || word == "teach" ? "model"
                                : word == "prove" || word == "verify"               ? "proofs"
                                : word == "fuzz"                                    ? "fuzz"
                                                                                    : "impl";
    if (std::filesystem::exists(std::string(SAMESUM_BINARY_DIR) + "/samesum-" + program)) return true;
    if (said.insert(program).second) fmt::print("skipped: samesum-{} is not built\n", program);
    return false;
}

BOOST_AUTO_TEST_CASE(wrong_input_gets_one_line_and_exit_2) {
    std::vector<Row> rows = wrong;
    for (const std::string& command : commands)
        rows.push_back({command + " --nonsense", "unrecognised option '--nonsense'"});
    int tried = 0;
    for (const Row& row : rows) {
        if (!is_built(row.arguments)) continue;
        ++tried;
        const Outcome outcome = run(row.arguments, row.input);
        BOOST_TEST_CONTEXT("samesum " << row.arguments) {
            BOOST_TEST(outcome.exit == 2, "exit " << outcome.exit << ", stderr: " << outcome.err);
            BOOST_TEST(outcome.complains(row.error), "stderr: " << outcome.err);
            BOOST_TEST(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1, "stderr: " << outcome.err);
            BOOST_TEST(outcome.err.starts_with("samesum "), "stderr: " << outcome.err);
            if (row.arguments.find("--json") == std::string::npos) BOOST_TEST(outcome.out == "");
        }
    }
    BOOST_TEST(tried > 40);
}

BOOST_AUTO_TEST_CASE(every_command_explains_itself) {
    int tried = 0;
    for (const std::string& command : commands) {
        if (!is_built(command)) continue;
        ++tried;
        const Outcome outcome = run(command + " --help");
        BOOST_TEST_CONTEXT("samesum " << command << " --help") {
            BOOST_TEST(outcome.exit == 0);
            BOOST_TEST(outcome.err == "");
            BOOST_TEST(outcome.says("samesum " + command));
            BOOST_TEST(outcome.says("--help"));
            BOOST_TEST(outcome.says("\nexamples:\n  "));
        }
    }
    BOOST_TEST(tried > 10);
}

BOOST_AUTO_TEST_CASE(an_answer_that_cannot_be_written_is_no_success) {
    for (const char* arguments : {"order enumerate --ranks 4 --list all", "sum eval --values '1 2 3'"}) {
        const std::string command =
            fmt::format("'{}/samesum-model' {} >/dev/full 2>/dev/null", SAMESUM_BINARY_DIR, arguments);
        BOOST_TEST(std::system(command.c_str()) != 0, arguments);
    }
}

}  // namespace
}  // namespace samesum
