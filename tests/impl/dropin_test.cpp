// The drop-in NCCL before a fake one, each case in a process of its own: what is forwarded, deferred, replaced, refused
// and recorded, without a GPU.
// SPDX-License-Identifier: Apache-2.0
//
// Rank 1 of 4 needs no memory of CUDA for fixed_root, so its part is played to the end; the ordered sums are for
// gpu_dropin.py.
#define BOOST_TEST_MODULE impl_dropin
#include "impl/dropin/samesum_nccl.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/program.hpp"

namespace {

namespace fs = std::filesystem;
using Environment = std::map<std::string, std::string>;
using Lines = std::vector<std::string>;

const std::string shim_file = SAMESUM_DROPIN, fake_file = SAMESUM_FAKE_NCCL, old_fake_file = SAMESUM_OLD_FAKE_NCCL;

class TemporaryFolder {
public:
    TemporaryFolder() : path_((fs::temp_directory_path() / "samesum-dropin-XXXXXX").string()) {
        BOOST_REQUIRE(::mkdtemp(path_.data()) != nullptr);
    }
    ~TemporaryFolder() { fs::remove_all(path_); }
    [[nodiscard]] fs::path path() const { return path_; }

private:
    std::string path_;
};

std::string text_of(const fs::path& file) {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

Lines lines_of(const std::string& text) {
    Lines lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

/// The library under test, as a program that asked for it by name has it.
class Shim {
public:
    Shim() : library_(::dlopen(shim_file.c_str(), RTLD_NOW | RTLD_LOCAL)) {
        if (library_ == nullptr) throw std::runtime_error(::dlerror());
    }
    template <class Function>
    [[nodiscard]] Function* get(const char* name) const {
        auto* function = reinterpret_cast<Function*>(::dlsym(library_, name));
        if (function == nullptr) throw std::runtime_error(std::string("no ") + name);
        return function;
    }

    [[nodiscard]] bool has(const std::string& name) const { return ::dlsym(library_, name.c_str()) != nullptr; }

    [[nodiscard]] ncclUniqueId unique_id() const {
        ncclUniqueId id{};
        if (get<decltype(ncclGetUniqueId)>("ncclGetUniqueId")(&id) != ncclSuccess) id = {};
        return id;
    }
    [[nodiscard]] ncclResult_t init_with(ncclUniqueId id) {
        return get<decltype(ncclCommInitRank)>("ncclCommInitRank")(&comm, 4, id, 1);
    }
    [[nodiscard]] ncclResult_t init() { return init_with(unique_id()); }
    [[nodiscard]] ncclResult_t all_reduce(std::size_t count = 100, ncclDataType_t type = ncclBfloat16,
                                          ncclRedOp_t op = ncclSum) const {
        return get<decltype(ncclAllReduce)>("ncclAllReduce")(in, out, count, type, op, comm, nullptr);
    }
    [[nodiscard]] ncclResult_t reduce_scatter(std::size_t count = 100, ncclDataType_t type = ncclBfloat16,
                                              ncclRedOp_t op = ncclSum) const {
        return get<decltype(ncclReduceScatter)>("ncclReduceScatter")(in, out, count, type, op, comm, nullptr);
    }
    /// The rows of the roots lie one after the other.
    [[nodiscard]] ncclResult_t reduce(int root, std::size_t count = 10, std::size_t place = 0) const {
        return get<decltype(ncclReduce)>("ncclReduce")(in + place * count * 2, out, count, ncclBfloat16, ncclSum, root,
                                                       comm, nullptr);
    }
    [[nodiscard]] ncclResult_t all_gather() const {
        return get<decltype(ncclAllGather)>("ncclAllGather")(in, out, 100, ncclBfloat16, comm, nullptr);
    }
    [[nodiscard]] ncclResult_t start() const { return get<decltype(ncclGroupStart)>("ncclGroupStart")(); }
    [[nodiscard]] ncclResult_t end() const { return get<decltype(ncclGroupEnd)>("ncclGroupEnd")(); }
    [[nodiscard]] std::string last_error() const { return get<decltype(ncclGetLastError)>("ncclGetLastError")(comm); }
    [[nodiscard]] std::string combine(const char* scheme, const char* accumulation, std::vector<std::uint64_t> sizes,
                                      ncclDataType_t type = ncclBfloat16, int root = 0) const {
        const ncclResult_t result = get<decltype(samesumCombine)>("samesumCombine")(
            comm, scheme, accumulation, sizes.empty() ? nullptr : sizes.data(), static_cast<int>(sizes.size()), 8, type,
            root, in, out, nullptr);
        return fmt::format("{} {}", static_cast<int>(result), get<decltype(samesumLastError)>("samesumLastError")());
    }

    /// Addresses that nobody reads.
    char *in = reinterpret_cast<char*>(0x10000), *out = reinterpret_cast<char*>(0x20000);
    ncclComm_t comm = nullptr;

private:
    void* library_;
};

/// What the fake noted since the last time: "Reduce 400 to 0", "Recv 200 from 0". Questions are left out.
Lines played() {
    void* const fake = ::dlopen(fake_file.c_str(), RTLD_NOW | RTLD_LOCAL);
    const auto notes = reinterpret_cast<const char* (*)()>(::dlsym(fake, "fake_notes"));
    Lines found;
    for (const std::string& line : lines_of(notes())) {
        std::istringstream stream(line);
        std::string name;
        std::array<long, 8> words{};
        stream >> name;
        for (long& word : words) stream >> word;
        name = name.substr(4);
        if (name == "Reduce")
            name += fmt::format(" {} to {}", words[2], words[5]);
        else if (name == "Broadcast")
            name += fmt::format(" {} from {}", words[2], words[4]);
        else if (name == "Send" || name == "Recv")
            name += fmt::format(" {} {} {}", words[1], name == "Send" ? "to" : "from", words[3]);
        else if (name == "AllReduce" || name == "ReduceScatter" || name == "AllGather")
            name += fmt::format(" {}", words[2]);
        else if (!name.starts_with("Group"))
            continue;
        found.push_back(name);
    }
    return found;
}

struct Outcome {
    int exit = -1;
    Lines said;  ///< what the body returned
    Lines err;

    [[nodiscard]] bool complains(std::string_view text) const {
        return std::any_of(err.begin(), err.end(),
                           [&](const std::string& line) { return line.find(text) != std::string::npos; });
    }
};

/// Runs the body in a child with these settings.
Outcome in_child(const Environment& environment, const std::function<Lines(Shim&)>& body, bool leave_by_exit = false) {
    const TemporaryFolder folder;
    std::fflush(nullptr);
    const pid_t child = ::fork();
    BOOST_REQUIRE(child >= 0);
    if (child == 0) {
        ::alarm(60);
        for (const char* name : {"SAMESUM_POLICY", "SAMESUM_CALLS", "SAMESUM_ACCUMULATION", "SAMESUM_NCCL"})
            ::unsetenv(name);
        Environment all{{"SAMESUM_NCCL", fake_file}, {"FAKE_RANKS", "4"}, {"FAKE_RANK", "1"}};
        for (const auto& [name, value] : environment) all[name] = value;
        for (const auto& [name, value] : all) ::setenv(name.c_str(), value.c_str(), 1);
        if (std::freopen((folder.path() / "err").c_str(), "w", stderr) == nullptr) ::_exit(8);
        int code = 0;
        try {
            Shim shim;
            std::ofstream(folder.path() / "said") << fmt::format("{}", fmt::join(body(shim), "\n"));
        } catch (const std::exception& error) {
            std::fprintf(stderr, "test: %s\n", error.what());
            code = 9;
        }
        std::fflush(stderr);
        if (leave_by_exit) std::exit(code);
        ::_exit(code);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    Outcome outcome{WIFEXITED(status) ? WEXITSTATUS(status) : -1, lines_of(text_of(folder.path() / "said")),
                    lines_of(text_of(folder.path() / "err"))};
    BOOST_TEST(outcome.exit == 0, fmt::format("{}", fmt::join(outcome.err, "\n")));
    return outcome;
}

std::string number(ncclResult_t result) { return std::to_string(static_cast<int>(result)); }

struct Declared {
    std::string name;
    std::size_t parameters;
    bool by_value;  ///< takes a unique id, which travels in memory
    bool answers_text;
};

/// What nccl.h declares.
std::vector<Declared> declared_functions() {
    std::string text = text_of(SAMESUM_NCCL_HEADER);
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
    const Outcome outcome = in_child({{"FAKE_RANKS", "0"}}, [&](Shim& shim) {
        void* const fake = ::dlopen(fake_file.c_str(), RTLD_NOW | RTLD_LOCAL);
        const auto notes = reinterpret_cast<const char* (*)()>(::dlsym(fake, "fake_notes"));
        Lines wrong;
        for (const Declared& each : all) {
            // What a newer NCCL added is not ours to forward; a preloaded program finds it in the real library.
            if (NCCL_VERSION_CODE > 22809 && !shim.has(each.name)) continue;
            using Words = long(long, long, long, long, long, long, long, long);
            using Start = int(long, int, ncclUniqueId, int, long);
            const bool tool = each.name[0] == 'p';
            const std::string real = each.name.substr(tool ? 1 : 0);
            (void)notes();
            std::string expected = real;
            if (each.answers_text) {
                using Text = const char*(long);
                const std::string text = shim.get<Text>(each.name.c_str())(0);
                if (text != (real == "ncclGetErrorString" ? "fake: no error" : "fake: the last error"))
                    wrong.push_back(each.name + ": " + text);
                continue;
            }
            if (each.by_value) {
                const bool configured = each.parameters == 5;
                (void)shim.get<Start>(each.name.c_str())(1001, 1002, {{'A'}}, 1003, 1004);
                expected += configured ? " 1001 1002 65 1003 1004" : " 1001 1002 65 1003";
            } else {
                (void)shim.get<Words>(each.name.c_str())(1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008);
                for (std::size_t i = 0; i < each.parameters; ++i) expected += fmt::format(" {}", 1001 + i);
            }
            const Lines noted = lines_of(notes());
            if (noted.size() != 1 || !(noted[0] + " ").starts_with(expected + " "))
                wrong.push_back(fmt::format("{}: {} instead of {}", each.name, fmt::join(noted, " / "), expected));
        }
        return wrong;
    });
    BOOST_TEST(outcome.said.empty(), fmt::format("{}", fmt::join(outcome.said, "\n")));
    BOOST_TEST(outcome.err.empty(), fmt::format("{}", fmt::join(outcome.err, "\n")));
}

BOOST_AUTO_TEST_CASE(nothing_else_leaves_the_library) {
    const TemporaryFolder folder;
    const std::string list = (folder.path() / "names").string();
    if (std::system(fmt::format("nm -D --defined-only '{}' > '{}'", shim_file, list).c_str()) != 0) return;
    std::set<std::string> declared{"samesumCombine", "samesumLastError"};
    for (const Declared& each : declared_functions()) declared.insert(each.name);
    std::size_t seen = 0;
    for (const std::string& line : lines_of(text_of(list))) {
        ++seen;
        const std::string name = line.substr(line.rfind(' ') + 1);
        BOOST_TEST(declared.count(name) == 1u, name);
    }
    BOOST_TEST((seen == declared.size() || NCCL_VERSION_CODE > 22809));
    BOOST_TEST(seen >= 84u);
}

/// A policy's part, played by rank 1 of 4.
struct Played {
    std::string name;
    Environment environment;
    std::function<Lines(Shim&)> body;  ///< answers of the calls
    Lines answers, calls;
    std::string complaint{};  ///< part of the one line on stderr; empty: none
};

const Environment fixed_root{{"SAMESUM_POLICY", "fixed_root"}};

const std::vector<Played> parts{
    {"no policy forwards",
     {},
     [](Shim& s) {
         return Lines{number(s.all_reduce()), number(s.reduce_scatter()), number(s.reduce(2)),
                      number(s.all_reduce(100, ncclBfloat16, ncclAvg))};
     },
     {"0", "0", "0", "0"},
     {"AllReduce 100", "ReduceScatter 100", "Reduce 10 to 2", "AllReduce 100"}},
    {"an all-reduce is a reduce and a broadcast",
     fixed_root,
     [](Shim& s) { return Lines{number(s.all_reduce())}; },
     {"0"},
     {"Reduce 100 to 0", "Broadcast 100 from 0"}},
    {"a reduce-scatter is a reduce and a scatter",
     fixed_root,
     [](Shim& s) { return Lines{number(s.reduce_scatter())}; },
     {"0"},
     {"Reduce 400 to 0", "GroupStart", "Recv 200 from 0", "GroupEnd"}},
    {"a lone reduce to another root goes by root 0",
     fixed_root,
     [](Shim& s) {
         return Lines{number(s.reduce(1)), number(s.reduce(3))};
     },
     {"0", "0"},
     {"Reduce 10 to 0", "GroupStart", "Recv 20 from 0", "GroupEnd", "Reduce 10 to 0", "GroupStart", "GroupEnd"}},
    {"a lone reduce to root 0 stays",
     fixed_root,
     [](Shim& s) { return Lines{number(s.reduce(0))}; },
     {"0"},
     {"Reduce 10 to 0"}},
    {"reduces to each owner in one group are one reduce, after what else the group has",
     fixed_root,
     [](Shim& s) {
         Lines said{number(s.start())};
         for (int root = 0; root < 4; ++root)
             said.push_back(number(s.reduce(root, 10, static_cast<std::size_t>(root))));
         said.push_back(number(s.all_gather()));
         said.push_back(number(s.end()));
         return said;
     },
     {"0", "0", "0", "0", "0", "0", "0"},
     {"GroupStart", "AllGather 100", "GroupEnd", "Reduce 40 to 0", "GroupStart", "Recv 20 from 0", "GroupEnd"}},
    {"roots that fall begin a new reduce",
     fixed_root,
     [](Shim& s) {
         (void)s.start();
         (void)s.reduce(2);
         (void)s.reduce(1);
         return Lines{number(s.end())};
     },
     {"0"},
     {"GroupStart", "GroupEnd", "Reduce 10 to 0", "GroupStart", "GroupEnd", "Reduce 10 to 0", "GroupStart",
      "Recv 20 from 0", "GroupEnd"}},
    {"only the outermost end plays, in the order of the calls",
     fixed_root,
     [](Shim& s) {
         (void)s.start();
         (void)s.start();
         (void)s.all_reduce(7);
         (void)s.end();
         const std::size_t before = played().size();
         (void)s.all_reduce(9);
         return Lines{std::to_string(before), number(s.end())};
     },
     {"3", "0"},
     {"GroupEnd", "Reduce 7 to 0", "Broadcast 7 from 0", "Reduce 9 to 0", "Broadcast 9 from 0"}},
    {"sums without an order are forwarded",
     fixed_root,
     [](Shim& s) {
         return Lines{number(s.all_reduce(100, ncclInt32)), number(s.all_reduce(100, ncclFloat32, ncclMax)),
                      number(s.all_reduce(0)), number(s.all_reduce(100, ncclUint64, ncclAvg))};
     },
     {"0", "0", "0", "0"},
     {"AllReduce 100", "AllReduce 100", "AllReduce 0", "AllReduce 100"}},
    {"two ranks add once",
     {{"SAMESUM_POLICY", "fixed_root"}, {"FAKE_RANKS", "2"}},
     [](Shim& s) {
         return Lines{number(s.all_reduce()), number(s.reduce_scatter())};
     },
     {"0", "0"},
     {"AllReduce 100", "ReduceScatter 100"}},
    {"what NCCL refuses is NCCL's to refuse",
     fixed_root,
     [](Shim& s) {
         return Lines{number(s.reduce(9)), number(s.all_reduce(5, ncclNumTypes))};
     },
     {"0", "0"},
     {"Reduce 10 to 9", "AllReduce 5"}},
    {"an average is refused",
     fixed_root,
     [](Shim& s) {
         return Lines{number(s.all_reduce(8, ncclFloat32, ncclAvg)), s.last_error()};
     },
     {"5",
      "ncclAllReduce of float32 by avg over 4 ranks under SAMESUM_POLICY=fixed_root: NCCL scales on the way, rounded "
      "by "
      "protocol and position; ncclSum, then a division by the caller, would be right"},
     {},
     "by avg over 4 ranks"},
    {"so is a sum of products of the program's own",
     {{"SAMESUM_POLICY", "ordered"}},
     [](Shim& s) { return Lines{number(s.reduce_scatter(8, ncclFloat16, static_cast<ncclRedOp_t>(6)))}; },
     {"5"},
     {},
     "ncclReduceScatter of float16 by premulsum over 4 ranks under SAMESUM_POLICY=ordered"},
    {"products are kept where NCCL makes all of them",
     fixed_root,
     [](Shim& s) {
         return Lines{number(s.all_reduce(8, ncclFloat32, ncclProd)),
                      number(s.reduce_scatter(8, ncclFloat32, ncclProd))};
     },
     {"0", "5"},
     {"Reduce 8 to 0", "Broadcast 8 from 0"},
     "only sums are kept in order"},
    {"what is refused in a group is refused at its end, and nothing is played",
     fixed_root,
     [](Shim& s) {
         (void)s.start();
         const std::string sum = number(s.all_reduce());
         const std::string average = number(s.all_reduce(8, ncclFloat32, ncclAvg));
         const std::string end = number(s.end());
         return Lines{sum, average, end, number(s.all_reduce(3))};
     },
     {"0", "5", "5", "0"},
     {"GroupStart", "GroupEnd", "Reduce 3 to 0", "Broadcast 3 from 0"},
     "by avg"},
    {"sums on two communicators in one group would wait for each other",
     fixed_root,
     [](Shim& s) {
         (void)s.start();
         (void)s.all_reduce();
         const ncclComm_t first = s.comm;
         (void)s.init();
         const std::string second = number(s.all_reduce());
         s.comm = first;
         return Lines{second, number(s.end())};
     },
     {"5", "5"},
     {"GroupStart", "GroupEnd"},
     "sums on two communicators in one group"},
    {"a group that is only simulated says so",
     fixed_root,
     [](Shim& s) {
         (void)s.start();
         (void)s.all_reduce();
         const auto simulate = s.get<decltype(ncclGroupSimulateEnd)>("ncclGroupSimulateEnd");
         return Lines{number(simulate(nullptr)), number(s.start()), number(s.end())};
     },
     {"5", "0", "0"},
     {"GroupStart", "GroupSimulateEnd", "GroupStart", "GroupEnd"},
     "NCCL cannot estimate"},
    {"an error of NCCL comes back, and says where",
     {{"SAMESUM_POLICY", "fixed_root"}, {"FAKE_FAIL", "ncclBroadcast"}},
     [](Shim& s) { return Lines{number(s.all_reduce())}; },
     {"6"},
     {"Reduce 100 to 0", "Broadcast 100 from 0"},
     "ncclBroadcast on rank 1: fake: an error"},
    {"an error of NCCL inside a combine leaves no group open",
     {{"SAMESUM_POLICY", "fixed_root"}, {"FAKE_FAIL", "ncclRecv"}},
     [](Shim& s) { return Lines{number(s.reduce_scatter())}; },
     {"6"},
     {"Reduce 400 to 0", "GroupStart", "Recv 200 from 0", "GroupEnd"},
     "ncclRecv on rank 1"},
    {"a communicator that does not block is waited for inside a combine",
     {{"SAMESUM_POLICY", "fixed_root"}, {"FAKE_BUSY", "3"}},
     [](Shim& s) {
         (void)s.start();
         (void)s.reduce_scatter();
         return Lines{number(s.end()), number(s.all_reduce(2, ncclInt8))};
     },
     {"0", "7"},
     {"GroupStart", "GroupEnd", "Reduce 400 to 0", "GroupStart", "Recv 200 from 0", "GroupEnd", "AllReduce 2"}},
    {"without a GPU an ordered sum fails aloud",
     {{"SAMESUM_POLICY", "ordered"}, {"CUDA_VISIBLE_DEVICES", ""}},
     [](Shim& s) { return Lines{number(s.all_reduce())}; },
     {"1"},
     {},
     "cudaMalloc"},
};

BOOST_AUTO_TEST_CASE(policies_play_their_parts) {
    for (const Played& part : parts) {
        const Outcome outcome = in_child(part.environment, [&](Shim& shim) {
            (void)shim.init();
            (void)played();
            Lines said = part.body(shim);
            said.push_back("--");
            for (const std::string& call : played()) said.push_back(call);
            return said;
        });
        Lines expected = part.answers;
        expected.push_back("--");
        expected.insert(expected.end(), part.calls.begin(), part.calls.end());
        BOOST_TEST_CONTEXT(part.name) {
            BOOST_TEST(fmt::format("{}", fmt::join(outcome.said, "\n")) ==
                       fmt::format("{}", fmt::join(expected, "\n")));
            BOOST_TEST(outcome.err.size() == (part.complaint.empty() ? 0u : 1u),
                       fmt::format("{}", fmt::join(outcome.err, "\n")));
            if (!part.complaint.empty()) {
                BOOST_TEST(outcome.complains(part.complaint), fmt::format("{}", fmt::join(outcome.err, "\n")));
                BOOST_TEST(outcome.complains("samesum: "));
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(no_job_starts_with_other_semantics_than_asked) {
    const TemporaryFolder folder;
    const std::string copy = (folder.path() / "libnccl.so.2").string();
    fs::copy_file(shim_file, copy);
    struct Refused {
        Environment environment;
        int result;
        std::string complaint;
    };
    const std::vector<Refused> table{
        {{{"SAMESUM_POLICY", "Ordered"}}, 4, "SAMESUM_POLICY='Ordered'; observe, fixed_root, ordered or direct"},
        {{{"SAMESUM_POLICY", "none"}}, 4, "SAMESUM_POLICY='none'"},
        {{{"SAMESUM_POLICY", "ordered"}, {"SAMESUM_ACCUMULATION", "fp32"}}, 4, "per_hop or fp32_once would be right"},
        {{{"SAMESUM_POLICY", "fixed_root"}, {"SAMESUM_ACCUMULATION", "fp32_once"}}, 4, "ordered or direct would be"},
        {{{"SAMESUM_ACCUMULATION", "fp32_once"}}, 4, "SAMESUM_POLICY=(unset)"},
        {{{"SAMESUM_CALLS", "x"}}, 4, "SAMESUM_POLICY=observe would be right"},
        {{{"SAMESUM_POLICY", "observe"}, {"SAMESUM_CALLS", "/nowhere/x"}}, 4, "cannot be written to /nowhere/x."},
        {{{"SAMESUM_NCCL", "/nowhere/libnccl.so.2"}}, 2, "the real NCCL is not found: SAMESUM_NCCL=/nowhere/libnccl"},
        {{{"SAMESUM_NCCL", shim_file}}, 2, "is samesum's own library, not NVIDIA's"},
        {{{"SAMESUM_NCCL", copy}}, 2, "is samesum's own library, not NVIDIA's"},
        {{{"SAMESUM_NCCL", "libm.so.6"}}, 2, "libm.so.6 is no NCCL"},
    };
    for (const Refused& row : table) {
        const Outcome outcome = in_child(row.environment, [](Shim& shim) {
            const std::string first = number(shim.init());
            void* never = reinterpret_cast<void*>(-1);
            const auto all = shim.get<decltype(ncclCommInitAll)>("ncclCommInitAll");
            const std::string second = number(all(reinterpret_cast<ncclComm_t*>(never), 2, nullptr));
            return Lines{first, second};
        });
        BOOST_TEST_CONTEXT(row.complaint) {
            const std::string result = std::to_string(row.result);
            BOOST_TEST(outcome.said == (Lines{result, result}), boost::test_tools::per_element());
            BOOST_TEST(outcome.complains(row.complaint), fmt::format("{}", fmt::join(outcome.err, "\n")));
            for (const std::string& line : outcome.err) BOOST_TEST(line.starts_with("samesum: "), line);
        }
    }
}

BOOST_AUTO_TEST_CASE(ranks_under_different_policies_do_not_meet) {
    const TemporaryFolder folder;
    const std::string file = (folder.path() / "id").string();
    const Environment ordered{{"SAMESUM_POLICY", "ordered"}};
    Environment once = ordered;
    once["SAMESUM_ACCUMULATION"] = "fp32_once";
    const Environment observe{{"SAMESUM_POLICY", "observe"}, {"SAMESUM_CALLS", (folder.path() / "calls").string()}};
    struct Pair {
        Environment first, other;
        std::string complaint;  ///< of the other
    };
    const std::vector<Pair> table{
        {ordered, ordered, ""},
        {{}, observe, ""},
        {ordered, {}, "has SAMESUM_POLICY ordered, this one none that replaces"},
        {ordered, observe, "has SAMESUM_POLICY ordered, this one none that replaces"},
        {{}, ordered, "has SAMESUM_POLICY none that replaces, or not this library, this one ordered"},
        {ordered, fixed_root, "has SAMESUM_POLICY ordered, this one fixed_root"},
        {ordered, once, "has SAMESUM_POLICY ordered, this one ordered,fp32_once"},
    };
    for (const Pair& row : table) {
        (void)in_child(row.first, [&](Shim& shim) {
            const ncclUniqueId id = shim.unique_id();
            std::ofstream(file, std::ios::binary).write(id.internal, sizeof id.internal);
            return Lines{};
        });
        const Outcome other = in_child(row.other, [&](Shim& shim) {
            ncclUniqueId id{};
            std::ifstream(file, std::ios::binary).read(id.internal, sizeof id.internal);
            return Lines{number(shim.init_with(id))};
        });
        BOOST_TEST_CONTEXT(row.complaint) {
            BOOST_TEST(other.said == (Lines{row.complaint.empty() ? "0" : "4"}), boost::test_tools::per_element());
            BOOST_TEST(other.err.size() == (row.complaint.empty() ? 0u : 1u));
            BOOST_TEST((row.complaint.empty() || other.complains(row.complaint)),
                       fmt::format("{}", fmt::join(other.err, "\n")));
        }
    }
    Environment full = ordered;
    full["FAKE_FULL_ID"] = "1";
    const Outcome no_room = in_child(full, [](Shim& shim) {
        ncclUniqueId id{};
        return Lines{number(shim.get<decltype(ncclGetUniqueId)>("ncclGetUniqueId")(&id))};
    });
    BOOST_TEST(no_room.said == (Lines{"2"}), boost::test_tools::per_element());
    BOOST_TEST(no_room.complains("leaves no room"));
}

BOOST_AUTO_TEST_CASE(who_watches_changes_nothing) {
    const TemporaryFolder folder;
    const Outcome outcome = in_child({{"SAMESUM_POLICY", "observe"},
                                      {"SAMESUM_CALLS", (folder.path() / "calls").string()},
                                      {"FAKE_FAIL", "ncclCommCuDevice"}},
                                     [](Shim& shim) {
                                         (void)shim.init();
                                         (void)played();
                                         const std::string result = number(shim.all_reduce());
                                         Lines said = played();
                                         said.push_back(result);
                                         return said;
                                     });
    BOOST_TEST(outcome.said == (Lines{"AllReduce 100", "0"}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(an_older_nccl_lacks_functions_by_name) {
    const Outcome outcome = in_child({{"SAMESUM_NCCL", old_fake_file}}, [](Shim& shim) {
        (void)shim.init();
        ncclComm_t made = nullptr;
        const auto shrink = shim.get<decltype(ncclCommShrink)>("ncclCommShrink");
        const std::string first = number(shrink(shim.comm, nullptr, 0, &made, nullptr, 0));
        return Lines{first, number(shrink(shim.comm, nullptr, 0, &made, nullptr, 0)), number(shim.all_reduce())};
    });
    BOOST_TEST(outcome.said == (Lines{"5", "5", "0"}), boost::test_tools::per_element());
    BOOST_TEST(outcome.err.size() == 1u);
    BOOST_TEST(outcome.complains("has no ncclCommShrink"));
}

BOOST_AUTO_TEST_CASE(a_preloaded_program_meets_the_shim_first) {
    const auto version = [](const std::string& more) {
        return std::system(fmt::format("FAKE_RANKS=1 FAKE_VERSION=29901 LD_PRELOAD='{}' {} '{}/samesum-impl' --version "
                                       "2>/dev/null | grep -q '2.99.1 (library found)'",
                                       shim_file, more, SAMESUM_BINARY_DIR)
                               .c_str());
    };
    BOOST_TEST(version(fmt::format("SAMESUM_NCCL='{}'", fake_file)) == 0);
    BOOST_TEST(version("") != 0);  // the program's own NCCL is no such release
}

BOOST_AUTO_TEST_CASE(groups_belong_to_their_thread) {
    const Outcome outcome = in_child(fixed_root, [](Shim& shim) {
        (void)shim.init();
        (void)played();
        (void)shim.start();
        (void)shim.all_reduce(7);
        std::string other;
        std::thread([&] { other = number(shim.all_reduce(9)); }).join();
        Lines said = played();
        said.push_back(other);
        said.push_back(number(shim.end()));
        for (const std::string& call : played()) said.push_back(call);
        return said;
    });
    BOOST_TEST(outcome.said == (Lines{"GroupStart", "Reduce 9 to 0", "Broadcast 9 from 0", "0", "0", "GroupEnd",
                                      "Reduce 7 to 0", "Broadcast 7 from 0"}),
               boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_freed_communicator_is_forgotten) {
    // The next communicator may have other ranks at the same address.
    const Outcome outcome = in_child(fixed_root, [](Shim& shim) {
        Lines said;
        for (const char* end : {"ncclCommDestroy", "ncclCommAbort"}) {
            ::setenv("FAKE_RANKS", "4", 1);
            (void)shim.init();
            (void)shim.all_reduce(5);
            (void)played();
            said.push_back(number(shim.get<decltype(ncclCommDestroy)>(end)(shim.comm)));
            ::setenv("FAKE_RANKS", "2", 1);
            (void)shim.all_reduce(6);
            for (const std::string& call : played()) said.push_back(call);
        }
        return said;
    });
    BOOST_TEST(outcome.said == (Lines{"0", "AllReduce 6", "0", "AllReduce 6"}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(combines_by_the_librarys_own_door) {
    const Outcome outcome = in_child({}, [](Shim& shim) {
        Lines said{shim.combine("fixed_root", "per_hop", {1, 2, 0, 4})};
        (void)shim.init();
        (void)played();
        said.push_back(shim.combine("fixed_root", "per_hop", {1, 2, 0, 4}));
        said.push_back(shim.combine("reduce_per_owner", "per_hop", {1, 2, 0, 4}));
        for (const std::string& call : played()) said.push_back(call);
        said.push_back(shim.combine("fixed_root", "per_hop", {1, 2, 0}));
        said.push_back(shim.combine("fixed_root", "per_hop", {}));
        said.push_back(shim.combine("fixed_root", "per_hop", {1, 2, 0, 4}, ncclInt8));
        said.push_back(shim.combine("fixed_root", "per_hop", {1, 2, 0, 4}, ncclFloat32, 4));
        said.push_back(shim.combine("nonsense", "per_hop", {1, 2, 0, 4}));
        said.push_back(shim.combine("fixed_root", "nonsense", {1, 2, 0, 4}));
        (void)shim.start();
        said.push_back(shim.combine("fixed_root", "per_hop", {1, 2, 0, 4}));
        (void)shim.end();
        return said;
    });
    const Lines expected{
        "5 samesumCombine: no communicator",
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
        "5 sizes of 3 ranks; the communicator has 4",
        "5 samesumCombine: scheme, accumulation and sizes must be given",
        "5 int8 sums have no order; a floating-point type would be right",
        "5 root 4: expected 0 to 3",
        "5 unknown scheme 'nonsense'",
        "5 unknown rounding 'nonsense'",
        "5 samesumCombine inside ncclGroupStart and ncclGroupEnd; outside would be right",
    };
    BOOST_TEST_REQUIRE(outcome.said.size() == expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i)
        BOOST_TEST(outcome.said[i].starts_with(expected[i]), outcome.said[i] << " instead of " << expected[i]);
    BOOST_TEST(outcome.err.empty());
}

/// The recorded files of a folder, each as its JSON lines.
std::vector<std::vector<nlohmann::json>> recorded(const fs::path& folder) {
    std::vector<std::vector<nlohmann::json>> files;
    for (const auto& each : fs::directory_iterator(folder)) {
        files.emplace_back();
        for (const std::string& line : lines_of(text_of(each.path())))
            files.back().push_back(nlohmann::json::parse(line));
    }
    std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
    return files;
}

BOOST_AUTO_TEST_CASE(observe_writes_the_call_stream) {
    const TemporaryFolder folder;
    const Environment observe{{"SAMESUM_POLICY", "observe"},
                              {"SAMESUM_CALLS", (folder.path() / "calls.%h.jsonl").string()},
                              {"FAKE_VERSION", "22809"},
                              {"FAKE_QUIET", "1"},  // the fake's notes are for one thread
                              {"NCCL_ALGO", "Ring"}};
    const Outcome outcome = in_child(
        observe,
        [](Shim& shim) {
            (void)shim.init();
            (void)shim.all_reduce();
            (void)shim.start();
            (void)shim.reduce(2);
            (void)shim.all_gather();
            (void)shim.end();
            (void)shim.all_reduce(8, ncclFloat32, static_cast<ncclRedOp_t>(5));
            std::thread([&] { (void)shim.reduce_scatter(3, ncclInt8); }).join();
            const pid_t child = ::fork();
            if (child == 0) {
                (void)shim.all_reduce(77);
                std::this_thread::sleep_for(std::chrono::milliseconds(700));
                ::_exit(0);
            }
            ::waitpid(child, nullptr, 0);
            // More than a ring holds, from several threads.
            std::vector<std::thread> threads;
            for (int thread = 0; thread < 4; ++thread)
                threads.emplace_back([&] {
                    for (int i = 0; i < 10000; ++i) (void)shim.all_reduce(9);
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
    // What is written can be asked.
    for (const auto& each : fs::directory_iterator(folder.path())) {
        const auto answer = samesum::testing::run("order calls --ranks-per-node 1 '" + each.path().string() + "'");
        BOOST_TEST(answer.exit == 0, answer.err);
        BOOST_TEST(answer.says("depend on owner, position or count"), answer.out);
    }
    // The child's own file: it met the communicator anew.
    BOOST_TEST_REQUIRE(files[1].size() == 3u);
    BOOST_TEST(files[1].back()[3] == 77);
    BOOST_TEST(files[1][0].at("process") != lines[0].at("process"));
}

BOOST_AUTO_TEST_CASE(a_policy_is_recorded_when_a_file_is_named) {
    const TemporaryFolder folder;
    const Outcome outcome = in_child(
        {{"SAMESUM_POLICY", "fixed_root"}, {"SAMESUM_CALLS", (folder.path() / "calls").string()}},
        [](Shim& shim) {
            (void)shim.init();
            (void)shim.all_reduce();
            (void)shim.all_reduce(8, ncclFloat32, ncclAvg);
            (void)shim.all_reduce(8, ncclInt32);
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

/// Not judged here: a busy machine would be.
BOOST_AUTO_TEST_CASE(what_a_call_costs) {
    const TemporaryFolder folder;
    for (const Environment& policy :
         {Environment{}, Environment{{"SAMESUM_POLICY", "observe"}, {"SAMESUM_CALLS", (folder.path() / "c").string()}},
          fixed_root}) {
        Environment environment = policy;
        environment["FAKE_QUIET"] = "1";
        const Outcome outcome = in_child(environment, [](Shim& shim) {
            (void)shim.init();
            void* const fake = ::dlopen(fake_file.c_str(), RTLD_NOW | RTLD_LOCAL);
            Lines said;
            for (auto* call : {reinterpret_cast<decltype(&ncclAllReduce)>(::dlsym(fake, "ncclAllReduce")),
                               shim.get<decltype(ncclAllReduce)>("ncclAllReduce")}) {
                constexpr int calls = 3000;  // no more than a ring holds: NCCL's calls leave the writer time
                (void)call(shim.in, shim.out, 8, ncclInt32, ncclSum, shim.comm, nullptr);
                const auto begin = std::chrono::steady_clock::now();
                for (int i = 0; i < calls; ++i)
                    (void)call(shim.in, shim.out, 8, ncclInt32, ncclSum, shim.comm, nullptr);
                const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
                said.push_back(fmt::format("{:.0f} ns", took.count() / calls));
            }
            return said;
        });
        BOOST_TEST_REQUIRE(outcome.said.size() == 2u);
        fmt::print("a call of ncclAllReduce, SAMESUM_POLICY={}: {} of the fake, {} by way of the shim\n",
                   policy.empty() ? "" : policy.at("SAMESUM_POLICY"), outcome.said[0], outcome.said[1]);
    }
}

}  // namespace
