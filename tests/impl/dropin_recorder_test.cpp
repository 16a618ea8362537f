// The call stream that the drop-in NCCL records, and what a call costs, without a GPU.
// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE impl_dropin_recorder
#include <sys/stat.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
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

/// The recorded files of a folder, each as its JSON lines.
std::vector<std::vector<nlohmann::json>> recorded(const std::filesystem::path& folder) {
    std::vector<std::vector<nlohmann::json>> files;
    for (const auto& each : std::filesystem::directory_iterator(folder)) {
        files.emplace_back();
        for (const std::string& line : lines_of(samesum::read_file(each.path().string())))
            files.back().push_back(nlohmann::json::parse(line));
    }
    std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
    return files;
}

BOOST_AUTO_TEST_CASE(observe_writes_the_call_stream) {
    const TemporaryFolder folder;
    const Environment observe{{"SAMESUM_POLICY", "observe"},
                              {"SAMESUM_CALLS", folder.file("calls.%h.jsonl")},
                              {"FAKE_VERSION", "22809"},
                              {"FAKE_QUIET", "1"},  // the fake records calls of one thread only
                              {"NCCL_ALGO", "Ring"}};
    const DropInOutcome outcome = in_child(
        observe,
        [](DropIn& dropin) {
            (void)dropin.init();
            (void)dropin.all_reduce();
            (void)dropin.start();
            (void)dropin.reduce(2);
            (void)dropin.all_gather();
            (void)dropin.end();
            (void)dropin.all_reduce(8, ncclFloat32, static_cast<ncclRedOp_t>(5));
            std::thread([&] { (void)dropin.reduce_scatter(3, ncclInt8); }).join();
            const pid_t child = ::fork();
            if (child == 0) {
                (void)dropin.all_reduce(77);
                std::this_thread::sleep_for(std::chrono::milliseconds(700));
                ::_exit(0);
            }
            ::waitpid(child, nullptr, 0);
            // More calls than a ring holds, from several threads.
            std::vector<std::thread> threads;
            for (int thread = 0; thread < 4; ++thread)
                threads.emplace_back([&] {
                    for (int i = 0; i < 10000; ++i) (void)dropin.all_reduce(9);
                });
            for (std::thread& thread : threads) thread.join();
            return Lines{};
        },
        true);
    BOOST_TEST(outcome.err.empty(), fmt::format("{}", fmt::join(outcome.err, "\n")));
    const auto files = recorded(folder.path());
    BOOST_TEST_REQUIRE(files.size() == 2u);
    const auto& lines = files[0];
    BOOST_TEST_REQUIRE(lines.size() == 2u + 5u + 40000u);
    BOOST_TEST(lines[0].at("samesum") == "calls");
    BOOST_TEST(lines[0].at("nccl") == "2.28.9");
    BOOST_TEST(lines[0].at("policy") == "observe");
    BOOST_TEST(lines[0].at("environment").at("NCCL_ALGO") == "Ring");
    BOOST_TEST(lines[1].at("ranks") == 4);
    BOOST_TEST(lines[1].at("rank") == 1);
    const Lines expected{
        R"([1,1,"AllReduce",100,"bfloat16","sum",0,"0x0",0,false,"forwarded",false,256])",
        R"([2,1,"Reduce",10,"bfloat16","sum",2,"0x0",1,false,"forwarded",false,256])",
        R"([3,1,"AllGather",100,"bfloat16","",0,"0x0",1,false,"forwarded",false,256])",
        R"([4,1,"AllReduce",8,"float32","premulsum",0,"0x0",0,false,"forwarded",false,256])",
        R"([5,1,"ReduceScatter",3,"int8","sum",0,"0x0",0,false,"forwarded",false,256])",
    };
    std::map<int, std::string> by_number;
    for (std::size_t i = 2; i < lines.size(); ++i) by_number[lines[i][0].get<int>()] = lines[i].dump();
    BOOST_TEST(by_number.size() == lines.size() - 2);
    for (std::size_t i = 0; i < expected.size(); ++i)
        BOOST_TEST(by_number[static_cast<int>(i) + 1] == nlohmann::json::parse(expected[i]).dump());
    // `samesum order calls` reads the files.
    for (const auto& each : std::filesystem::directory_iterator(folder.path())) {
        const auto answer = run("order calls --ranks-per-node 1 '" + each.path().string() + "'");
        BOOST_TEST(answer.exit == 0, answer.err);
        BOOST_TEST(answer.says("depend on owner, position or count"), answer.out);
    }
    // The forked child has its own file, which describes the communicator again.
    BOOST_TEST_REQUIRE(files[1].size() == 3u);
    BOOST_TEST(files[1].back()[3] == 77);
    BOOST_TEST(files[1][0].at("process") != lines[0].at("process"));
}

BOOST_AUTO_TEST_CASE(replaced_calls_are_recorded_when_a_file_is_named) {
    const TemporaryFolder folder;
    const DropInOutcome outcome = in_child(
        {{"SAMESUM_POLICY", "fixed_root"}, {"SAMESUM_CALLS", folder.file("calls")}},
        [](DropIn& dropin) {
            (void)dropin.init();
            (void)dropin.all_reduce();
            (void)dropin.all_reduce(8, ncclFloat32, ncclAvg);
            (void)dropin.all_reduce(8, ncclInt32);
            return Lines{};
        },
        true);
    const auto files = recorded(folder.path());
    BOOST_TEST_REQUIRE(files.size() == 1u);
    BOOST_TEST_REQUIRE(files[0].size() == 5u);
    BOOST_TEST(files[0][2][10] == "replaced");
    BOOST_TEST(files[0][3][10] == "refused");
    BOOST_TEST(files[0][4][10] == "forwarded");
}

BOOST_AUTO_TEST_CASE(nothing_that_exists_is_opened) {
    const TemporaryFolder folder;
    const std::string victim = folder.file("victim");
    std::ofstream(victim) << "kept";
    // %p is in the name of the process that records.
    const DropInOutcome outcome = in_child(
        {{"SAMESUM_POLICY", "observe"}, {"SAMESUM_CALLS", folder.file("calls.%p.jsonl")}},
        [&](DropIn& dropin) {
            const std::string name = folder.file(fmt::format("calls.{}", ::getpid()));
            ::umask(0);
            std::filesystem::create_symlink(victim, name + ".jsonl");
            std::ofstream(name + ".2.jsonl") << "kept";
            (void)dropin.init();
            (void)dropin.all_reduce();
            return Lines{name};
        },
        true);
    BOOST_TEST_REQUIRE(outcome.results.size() == 1u);
    const std::string name = outcome.results[0];
    BOOST_TEST(samesum::read_file(victim) == "kept");
    BOOST_TEST(samesum::read_file(name + ".2.jsonl") == "kept");
    BOOST_TEST_REQUIRE(std::filesystem::exists(name + ".3.jsonl"));
    BOOST_TEST(lines_of(samesum::read_file(name + ".3.jsonl")).size() == 3u);
    using std::filesystem::perms;
    BOOST_TEST((std::filesystem::status(name + ".3.jsonl").permissions() == (perms::owner_read | perms::owner_write)));
    BOOST_TEST(outcome.err.empty());
}

/// Printed only: a limit would fail on a busy machine.
BOOST_AUTO_TEST_CASE(overhead_of_a_call) {
    const TemporaryFolder folder;
    for (const Environment& policy :
         {Environment{}, Environment{{"SAMESUM_POLICY", "observe"}, {"SAMESUM_CALLS", folder.file("c")}}, fixed_root}) {
        Environment environment = policy;
        environment["FAKE_QUIET"] = "1";
        const DropInOutcome outcome = in_child(environment, [](DropIn& dropin) {
            (void)dropin.init();
            void* const fake = ::dlopen(fake_file.c_str(), RTLD_NOW | RTLD_LOCAL);
            Lines results;
            for (auto* call : {reinterpret_cast<decltype(&ncclAllReduce)>(::dlsym(fake, "ncclAllReduce")),
                               dropin.get<decltype(ncclAllReduce)>("ncclAllReduce")}) {
                constexpr int calls = 3000;  // fewer than a ring holds, so the recorder's thread is not waited for
                (void)call(dropin.in, dropin.out, 8, ncclInt32, ncclSum, dropin.comm, nullptr);
                const auto begin = std::chrono::steady_clock::now();
                for (int i = 0; i < calls; ++i)
                    (void)call(dropin.in, dropin.out, 8, ncclInt32, ncclSum, dropin.comm, nullptr);
                const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
                results.push_back(fmt::format("{:.0f} ns", took.count() / calls));
            }
            return results;
        });
        BOOST_TEST_REQUIRE(outcome.results.size() == 2u);
        fmt::print("ncclAllReduce, SAMESUM_POLICY={}: {} for a call of the fake, {} through the drop-in\n",
                   policy.empty() ? "" : policy.at("SAMESUM_POLICY"), outcome.results[0], outcome.results[1]);
    }
}

}  // namespace
