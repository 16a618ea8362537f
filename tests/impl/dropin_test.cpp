// The drop-in NCCL without a GPU: its exports, wrong settings, ranks that disagree, groups, and its C interface.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE impl_dropin
#include "impl/dropin/samesum_nccl.h"

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "model/support/files.hpp"
#include "model/support/temporary_folder.hpp"
#include "tests/support/dropin.hpp"
#include "tests/support/program.hpp"

namespace {

using namespace samesum::testing;
using samesum::TemporaryFolder;

const std::string old_fake_file = SAMESUM_OLD_FAKE_NCCL;

struct Declared {
    std::string name;
    std::size_t parameters;
    bool id_by_value;  ///< takes a unique id, which is passed in memory
    bool returns_text;
};

/// The functions that nccl.h declares.
std::vector<Declared> declared_functions() {
    std::string text = samesum::read_file(SAMESUM_NCCL_HEADER);
    text = std::regex_replace(text, std::regex(R"(/\*[^*]*\*+([^/*][^*]*\*+)*/)"), "");
    const std::regex declaration(R"((ncclResult_t|const char\s*\*|void)\s+(p?nccl[A-Z]\w*)\s*\(([^)]*)\)\s*;)");
    std::vector<Declared> found;
    for (std::sregex_iterator at(text.begin(), text.end(), declaration), end; at != end; ++at) {
        const std::string parameters = (*at)[3];
        const auto commas = static_cast<std::size_t>(std::count(parameters.begin(), parameters.end(), ','));
        const bool none = parameters.find_first_not_of(" \n") == std::string::npos;
        found.push_back({(*at)[2], none ? 0 : commas + 1,
                         std::regex_search(parameters, std::regex(R"(ncclUniqueId\s+\w)")),
                         (*at)[1].str().starts_with("const")});
    }
    return found;
}

BOOST_AUTO_TEST_CASE(every_function_of_the_header_is_forwarded_with_its_arguments) {
    const std::vector<Declared> all = declared_functions();
    BOOST_TEST(all.size() >= 82u);
    const DropInOutcome outcome = in_child({{"FAKE_RANKS", "0"}}, [&](DropIn& dropin) {
        void* const fake = ::dlopen(fake_file.c_str(), RTLD_NOW | RTLD_LOCAL);
        const auto received = reinterpret_cast<const char* (*)()>(::dlsym(fake, "fake_calls"));
        Lines wrong;
        for (const Declared& each : all) {
            // Functions of a newer NCCL are not exported; a preloaded program finds them in the real library.
            if (NCCL_VERSION_CODE > 22809 && !dropin.has(each.name)) continue;
            using Words = long(long, long, long, long, long, long, long, long);
            using Start = int(long, int, ncclUniqueId, int, long);
            const bool tool = each.name[0] == 'p';
            const std::string real = each.name.substr(tool ? 1 : 0);
            (void)received();
            std::string expected = real;
            if (each.returns_text) {
                using Text = const char*(long);
                const std::string text = dropin.get<Text>(each.name.c_str())(0);
                if (text != (real == "ncclGetErrorString" ? "fake: no error" : "fake: the last error"))
                    wrong.push_back(each.name + ": " + text);
                continue;
            }
            if (each.id_by_value) {
                const bool configured = each.parameters == 5;
                (void)dropin.get<Start>(each.name.c_str())(1001, 1002, {{'A'}}, 1003, 1004);
                expected += configured ? " 1001 1002 65 1003 1004" : " 1001 1002 65 1003";
            } else {
                (void)dropin.get<Words>(each.name.c_str())(1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008);
                for (std::size_t i = 0; i < each.parameters; ++i) expected += fmt::format(" {}", 1001 + i);
            }
            const Lines calls = lines_of(received());
            if (calls.size() != 1 || !(calls[0] + " ").starts_with(expected + " "))
                wrong.push_back(fmt::format("{}: {} instead of {}", each.name, fmt::join(calls, " / "), expected));
        }
        return wrong;
    });
    BOOST_TEST(outcome.results.empty(), fmt::format("{}", fmt::join(outcome.results, "\n")));
    BOOST_TEST(outcome.err.empty(), fmt::format("{}", fmt::join(outcome.err, "\n")));
}

BOOST_AUTO_TEST_CASE(nothing_else_is_exported) {
    const auto listing = run_line(fmt::format("nm -D --defined-only '{}'", dropin_file));
    if (listing.exit != 0) {
        const std::string why = fmt::format("nm cannot list the exported symbols; install binutils: {}", listing.err);
        fmt::print("skipped: {}\n", why);
        BOOST_TEST((std::getenv("SAMESUM_STRICT") == nullptr), why);
        return;
    }
    std::set<std::string> declared{"samesumCombine", "samesumLastError"};
    for (const Declared& each : declared_functions()) declared.insert(each.name);
    std::size_t seen = 0;
    for (const std::string& line : lines_of(listing.out)) {
        ++seen;
        const std::string name = line.substr(line.rfind(' ') + 1);
        BOOST_TEST(declared.count(name) == 1u, name);
    }
    BOOST_TEST((seen == declared.size() || NCCL_VERSION_CODE > 22809));
    BOOST_TEST(seen >= 84u);
}

BOOST_AUTO_TEST_CASE(wrong_settings_make_no_communicator) {
    const TemporaryFolder folder;
    const std::string copy = folder.file("libnccl.so.2");
    std::filesystem::copy_file(dropin_file, copy);
    struct Refused {
        Environment environment;
        int result;
        std::string error;
    };
    const std::vector<Refused> table{
        {{{"SAMESUM_POLICY", "Ordered"}},
         4,
         "SAMESUM_POLICY='Ordered': expected observe, fixed_root, ordered or direct"},
        {{{"SAMESUM_POLICY", "none"}}, 4, "SAMESUM_POLICY='none'"},
        {{{"SAMESUM_POLICY", "ordered"}, {"SAMESUM_ACCUMULATION", "fp32"}}, 4, "expected per_hop or fp32_once"},
        {{{"SAMESUM_POLICY", "fixed_root"}, {"SAMESUM_ACCUMULATION", "fp32_once"}},
         4,
         "expected SAMESUM_POLICY=ordered or direct"},
        {{{"SAMESUM_ACCUMULATION", "fp32_once"}}, 4, "SAMESUM_POLICY=(unset)"},
        {{{"SAMESUM_CALLS", "x"}}, 4, "expected SAMESUM_POLICY=observe"},
        {{{"SAMESUM_POLICY", "observe"}, {"SAMESUM_CALLS", "/nowhere/x"}}, 4, "cannot be written to /nowhere/x."},
        {{{"SAMESUM_TIMEOUT_S", "0"}}, 4, "SAMESUM_TIMEOUT_S='0': expected 1 to 604800 seconds"},
        {{{"SAMESUM_TIMEOUT_S", "604801"}}, 4, "SAMESUM_TIMEOUT_S='604801'"},
        {{{"SAMESUM_TIMEOUT_S", "1.5"}}, 4, "SAMESUM_TIMEOUT_S='1.5'"},
        {{{"SAMESUM_TIMEOUT_S", "10s"}}, 4, "SAMESUM_TIMEOUT_S='10s'"},
        {{{"SAMESUM_NCCL", "/nowhere/libnccl.so.2"}}, 2, "the real NCCL was not found: SAMESUM_NCCL=/nowhere/libnccl"},
        {{{"SAMESUM_NCCL", dropin_file}}, 2, "is samesum's own library, not NVIDIA's"},
        {{{"SAMESUM_NCCL", copy}}, 2, "is samesum's own library, not NVIDIA's"},
        {{{"SAMESUM_NCCL", "libm.so.6"}}, 2, "libm.so.6 is not an NCCL library"},
    };
    for (const Refused& row : table) {
        const DropInOutcome outcome = in_child(row.environment, [](DropIn& dropin) {
            const std::string first = number(dropin.init());
            void* unread = reinterpret_cast<void*>(-1);
            const auto all = dropin.get<decltype(ncclCommInitAll)>("ncclCommInitAll");
            const std::string second = number(all(reinterpret_cast<ncclComm_t*>(unread), 2, nullptr));
            return Lines{first, second};
        });
        BOOST_TEST_CONTEXT(row.error) {
            const std::string result = std::to_string(row.result);
            BOOST_TEST(outcome.results == (Lines{result, result}), boost::test_tools::per_element());
            BOOST_TEST(outcome.complains(row.error), fmt::format("{}", fmt::join(outcome.err, "\n")));
            for (const std::string& line : outcome.err) BOOST_TEST(line.starts_with("samesum: "), line);
        }
    }
}

BOOST_AUTO_TEST_CASE(ranks_under_different_policies_make_no_communicator) {
    const TemporaryFolder folder;
    const std::string file = folder.file("id");
    const Environment ordered{{"SAMESUM_POLICY", "ordered"}};
    Environment once = ordered;
    once["SAMESUM_ACCUMULATION"] = "fp32_once";
    const Environment observe{{"SAMESUM_POLICY", "observe"}, {"SAMESUM_CALLS", folder.file("calls")}};
    struct Pair {
        Environment first, other;
        std::string error;  ///< of the other
    };
    const std::vector<Pair> table{
        {ordered, ordered, ""},
        {{}, observe, ""},
        {ordered, {}, "ordered on the rank that made the unique id, no replacing policy on this rank"},
        {ordered, observe, "ordered on the rank that made the unique id, no replacing policy on this rank"},
        {{},
         ordered,
         "no replacing policy, or not this library on the rank that made the unique id, ordered on this rank"},
        {ordered, fixed_root, "ordered on the rank that made the unique id, fixed_root on this rank"},
        {ordered, once, "ordered on the rank that made the unique id, ordered,fp32_once on this rank"},
    };
    for (const Pair& row : table) {
        (void)in_child(row.first, [&](DropIn& dropin) {
            const ncclUniqueId id = dropin.unique_id();
            std::ofstream(file, std::ios::binary).write(id.internal, sizeof id.internal);
            return Lines{};
        });
        const DropInOutcome other = in_child(row.other, [&](DropIn& dropin) {
            ncclUniqueId id{};
            std::ifstream(file, std::ios::binary).read(id.internal, sizeof id.internal);
            return Lines{number(dropin.init_with(id))};
        });
        BOOST_TEST_CONTEXT(row.error) {
            BOOST_TEST(other.results == (Lines{row.error.empty() ? "0" : "4"}), boost::test_tools::per_element());
            BOOST_TEST(other.err.size() == (row.error.empty() ? 0u : 1u));
            BOOST_TEST((row.error.empty() || other.complains(row.error)),
                       fmt::format("{}", fmt::join(other.err, "\n")));
        }
    }
    Environment full = ordered;
    full["FAKE_FULL_ID"] = "1";
    const DropInOutcome id_in_use = in_child(full, [](DropIn& dropin) {
        ncclUniqueId id{};
        return Lines{number(dropin.get<decltype(ncclGetUniqueId)>("ncclGetUniqueId")(&id))};
    });
    BOOST_TEST(id_in_use.results == (Lines{"2"}), boost::test_tools::per_element());
    BOOST_TEST(id_in_use.complains("which carry the policy, are in use"));
}

BOOST_AUTO_TEST_CASE(nccl_itself_cannot_use_a_marked_unique_id) {
    const DropInOutcome outcome = in_child({{"SAMESUM_POLICY", "ordered"}}, [](DropIn& dropin) {
        const ncclUniqueId id = dropin.unique_id();
        // Magic number and address family, as the fake made them: 'A' and zeros.
        Lines results{id.internal[0] == 'A' ? "plain" : "hidden", id.internal[8] == 0 ? "plain" : "hidden",
                      id.internal[9] == 0 ? "plain" : "hidden"};
        (void)fake_record();
        results.push_back(number(dropin.init_with(id)));
        const std::string call = fake_record().at(0);
        results.push_back(call.substr(call.find(" 4 ")));
        return results;
    });
    BOOST_TEST(outcome.results.size() == 5u);
    BOOST_TEST((outcome.results[0] == "hidden" && outcome.results[1] == "hidden" && outcome.results[2] == "hidden"));
    BOOST_TEST(outcome.results[3] == "0");
    BOOST_TEST(outcome.results[4].starts_with(" 4 65 1"), outcome.results[4]);
    BOOST_TEST(outcome.err.empty());
}

BOOST_AUTO_TEST_CASE(a_policy_that_no_call_met_is_reported_at_exit) {
    const TemporaryFolder folder;
    // Only its name counts: a process without CUDA's driver makes no NCCL calls.
    const std::string driver = folder.file("libcuda.so.1");
    std::filesystem::copy_file(fake_file, driver);
    const auto err = [&](const Environment& environment, bool loads_driver, bool calls) {
        return in_child(
                   environment,
                   [&](DropIn& dropin) {
                       if (loads_driver) (void)::dlopen(driver.c_str(), RTLD_NOW | RTLD_LOCAL);
                       int version = 0;
                       if (calls) (void)dropin.get<decltype(ncclGetVersion)>("ncclGetVersion")(&version);
                       return Lines{};
                   },
                   true)
            .err;
    };
    const Lines reported = err(fixed_root, true, false);
    BOOST_TEST_REQUIRE(reported.size() == 1u);
    BOOST_TEST(reported[0].starts_with("samesum: SAMESUM_POLICY=fixed_root was set, but no NCCL call of process "));
    BOOST_TEST(err(fixed_root, true, true).empty());
    BOOST_TEST(err(fixed_root, false, false).empty());
    BOOST_TEST(err({}, true, false).empty());
}

BOOST_AUTO_TEST_CASE(observe_changes_nothing_when_nccl_fails) {
    const TemporaryFolder folder;
    const DropInOutcome outcome = in_child(
        {{"SAMESUM_POLICY", "observe"}, {"SAMESUM_CALLS", folder.file("calls")}, {"FAKE_FAIL", "ncclCommCuDevice"}},
        [](DropIn& dropin) {
            (void)dropin.init();
            (void)fake_calls();
            const std::string result = number(dropin.all_reduce());
            Lines results = fake_calls();
            results.push_back(result);
            return results;
        });
    BOOST_TEST(outcome.results == (Lines{"AllReduce 100", "0"}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_function_that_an_older_nccl_lacks_is_named) {
    const DropInOutcome outcome = in_child({{"SAMESUM_NCCL", old_fake_file}}, [](DropIn& dropin) {
        (void)dropin.init();
        ncclComm_t made = nullptr;
        const auto shrink = dropin.get<decltype(ncclCommShrink)>("ncclCommShrink");
        const std::string first = number(shrink(dropin.comm, nullptr, 0, &made, nullptr, 0));
        return Lines{first, number(shrink(dropin.comm, nullptr, 0, &made, nullptr, 0)), number(dropin.all_reduce())};
    });
    BOOST_TEST(outcome.results == (Lines{"5", "5", "0"}), boost::test_tools::per_element());
    BOOST_TEST(outcome.err.size() == 1u);
    BOOST_TEST(outcome.complains("has no ncclCommShrink"));
}

BOOST_AUTO_TEST_CASE(a_preloaded_program_calls_the_dropin) {
    const auto finds_fake_release = [](const std::string& more) {
        const auto versions =
            run_line(fmt::format("env FAKE_RANKS=1 FAKE_VERSION=29901 LD_PRELOAD='{}' {} '{}/samesum-impl' --version",
                                 dropin_file, more, SAMESUM_BINARY_DIR));
        return versions.says("2.99.1 (library found)");
    };
    BOOST_TEST(finds_fake_release(fmt::format("SAMESUM_NCCL='{}'", fake_file)));
    BOOST_TEST(!finds_fake_release(""));  // the program's own NCCL is another release
}

BOOST_AUTO_TEST_CASE(groups_are_counted_for_each_thread) {
    const DropInOutcome outcome = in_child(fixed_root, [](DropIn& dropin) {
        (void)dropin.init();
        (void)fake_calls();
        (void)dropin.start();
        (void)dropin.all_reduce(7);
        std::string other;
        std::thread([&] { other = number(dropin.all_reduce(9)); }).join();
        Lines results = fake_calls();
        results.push_back(other);
        results.push_back(number(dropin.end()));
        for (const std::string& call : fake_calls()) results.push_back(call);
        return results;
    });
    BOOST_TEST(outcome.results == (Lines{"GroupStart", "Reduce 9 to 0", "Broadcast 9 from 0", "0", "0", "GroupEnd",
                                         "Reduce 7 to 0", "Broadcast 7 from 0"}),
               boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_freed_communicator_is_forgotten) {
    // The next communicator may have the same address and another number of ranks.
    const DropInOutcome outcome = in_child(fixed_root, [](DropIn& dropin) {
        Lines results;
        for (const char* end : {"ncclCommDestroy", "ncclCommAbort"}) {
            ::setenv("FAKE_RANKS", "4", 1);
            (void)dropin.init();
            (void)dropin.all_reduce(5);
            (void)fake_calls();
            results.push_back(number(dropin.get<decltype(ncclCommDestroy)>(end)(dropin.comm)));
            (void)fake_calls();
            ::setenv("FAKE_RANKS", "2", 1);
            (void)dropin.all_reduce(6);
            for (const std::string& call : fake_calls()) results.push_back(call);
        }
        return results;
    });
    BOOST_TEST(outcome.results == (Lines{"0", "AllReduce 6", "0", "AllReduce 6"}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(combines_by_the_c_interface) {
    const DropInOutcome outcome = in_child({}, [](DropIn& dropin) {
        Lines results{dropin.combine("fixed_root", "per_hop", {1, 2, 0, 4})};
        (void)dropin.init();
        (void)fake_calls();
        results.push_back(dropin.combine("fixed_root", "per_hop", {1, 2, 0, 4}));
        results.push_back(dropin.combine("reduce_per_owner", "per_hop", {1, 2, 0, 4}));
        for (const std::string& call : fake_calls()) results.push_back(call);
        results.push_back(dropin.combine("fixed_root", "per_hop", {1, 2, 0}));
        results.push_back(dropin.combine("fixed_root", "per_hop", {}));
        results.push_back(dropin.combine("fixed_root", "per_hop", {1, 2, 0, 4}, ncclInt8));
        results.push_back(dropin.combine("fixed_root", "per_hop", {1, 2, 0, 4}, ncclFloat32, 4));
        results.push_back(dropin.combine("nonsense", "per_hop", {1, 2, 0, 4}));
        results.push_back(dropin.combine("fixed_root", "nonsense", {1, 2, 0, 4}));
        (void)dropin.start();
        results.push_back(dropin.combine("fixed_root", "per_hop", {1, 2, 0, 4}));
        (void)dropin.end();
        return results;
    });
    const Lines expected{
        "5 samesumCombine: comm is null; expected a communicator",
        "0 ",
        "0 ",
        "Reduce 56 to 0",
        "GroupStart",
        "Recv 32 from 0",
        "GroupEnd",
        "GroupStart",
        "Reduce 8 to 0",
        "Reduce 16 to 1",
        "Reduce 32 to 3",
        "GroupEnd",
        "5 samesumCombine: sizes of 3 ranks; expected 4, as the communicator has",
        "5 samesumCombine: scheme, accumulation or sizes is null; expected all three",
        "5 samesumCombine: type int8; expected a floating-point type",
        "5 root 4: expected 0 to 3",
        "5 unknown scheme 'nonsense'",
        "5 unknown rounding 'nonsense'",
        "5 samesumCombine: called inside a group; expected a call outside ncclGroupStart and ncclGroupEnd",
    };
    BOOST_TEST_REQUIRE(outcome.results.size() == expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i)
        BOOST_TEST(outcome.results[i].starts_with(expected[i]), outcome.results[i] << " instead of " << expected[i]);
    BOOST_TEST(outcome.err.empty());
}

}  // namespace
