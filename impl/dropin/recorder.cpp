// Records go through single-producer rings, one for each thread; only the file and the list of rings are locked.
// SPDX-License-Identifier: Apache-2.0
#include "impl/dropin/recorder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iterator>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "impl/dropin/real_nccl.hpp"

extern char** environ;  // NOLINT: POSIX declares it nowhere

namespace samesum::dropin {
namespace {

using Json = nlohmann::ordered_json;
constexpr auto pause = std::chrono::milliseconds(500);
std::atomic<Recorder*> current{nullptr};

std::string host() {
    std::array<char, 256> name{};
    ::gethostname(name.data(), name.size() - 1);
    return name.data();
}

std::string file_name() {
    std::string name = configuration().calls_file;
    if (name.empty()) name = "samesum-calls.%h.%p.jsonl";
    if (name.find("%p") == std::string::npos) name += ".%p";
    const auto replace = [&](std::string_view mark, const std::string& text) {
        for (std::size_t at = name.find(mark); at != std::string::npos; at = name.find(mark, at + text.size()))
            name.replace(at, mark.size(), text);
    };
    replace("%p", std::to_string(::getpid()));
    replace("%h", host());
    return name;
}

/// A new file that only this user can read: the environment may hold secrets. The name is easy to guess, and the folder
/// may be shared, so nothing that exists is opened and no link is followed. A name in use gets a number: x.2.jsonl.
int create_file(const std::string& path) {
    constexpr std::string_view extension = ".jsonl";
    constexpr int max_number = 1000;
    const std::size_t end = path.ends_with(extension) ? path.size() - extension.size() : path.size();
    for (int number = 1;; ++number) {
        std::string name = path;
        if (number > 1) name.insert(end, fmt::format(".{}", number));
        const int file = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (file >= 0 || errno != EEXIST || number == max_number) return file;
    }
}

Json nccl_environment() {
    Json settings = Json::object();
    for (char** each = environ; each != nullptr && *each != nullptr; ++each) {
        const std::string_view line = *each;
        const std::size_t equals = line.find('=');
        if (line.starts_with("NCCL_") && equals != std::string_view::npos)
            settings[std::string(line.substr(0, equals))] = line.substr(equals + 1);
    }
    return settings;
}

std::string line_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

/// log2 of the bytes to which both buffers are aligned, at most 8 (256 bytes).
unsigned char alignment_of(const DataCall& call) {
    const auto bits = reinterpret_cast<std::uintptr_t>(call.input) | reinterpret_cast<std::uintptr_t>(call.output);
    return static_cast<unsigned char>(std::min(std::countr_zero(bits | 256), 8));
}

bool in_place(const DataCall& call, int rank) {
    if (call.input == nullptr || call.output == nullptr) return false;
    const auto own = static_cast<std::size_t>(rank) * call.count * static_cast<std::size_t>(bytes_of(call.type));
    const auto* const in = static_cast<const std::byte*>(call.input);
    const auto* const out = static_cast<const std::byte*>(call.output);
    if (call.function == Function::reduce_scatter) return out == in + own;
    if (call.function == Function::all_gather) return in == out + own;
    return in == out;
}

}  // namespace

struct Recorder::CallRecord {
    std::uint64_t call, communicator, count, group;
    const void* stream;
    std::int32_t root;
    Function function;
    unsigned char type, operation, alignment;
    bool captured, in_place;
    Decision::Action action;
};

/// Written only by its thread, read only under the writer's lock.
struct Recorder::Ring {
    static constexpr std::size_t size = 4096;
    std::array<CallRecord, size> records;
    std::atomic<std::uint64_t> written{0}, read{0};
};

struct Recorder::Writer {
    std::mutex mutex;
    std::condition_variable wake;
    int file = -1;
    std::string error, pending;
    std::vector<std::shared_ptr<Ring>> rings;
    std::atomic<std::uint64_t> calls{0};

    Writer() {
        const std::string path = file_name();
        file = create_file(path);
        if (file < 0) {
            error = fmt::format("calls cannot be written to {}: {}; expected SAMESUM_CALLS=FILE in a writable folder",
                                path, std::strerror(errno));
            return;
        }
        int version = 0;
        (void)ncclGetVersion(&version);
        pending = line_of({{"samesum", "calls"},
                           {"format", 1},
                           {"host", host()},
                           {"process", ::getpid()},
                           {"nccl", fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100)},
                           {"library", real_path()},
                           {"policy", name(configuration().policy)},
                           {"accumulation", name(configuration().accumulation)},
                           {"environment", nccl_environment()},
                           {"columns",
                            {"call", "communicator", "collective", "count", "dtype", "op", "root", "stream", "group",
                             "captured", "did", "in_place", "alignment"}}});
        // The writer thread must not handle the program's signals.
        sigset_t all, before;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before);
        std::thread([this] {
            for (;;) {
                {
                    std::unique_lock lock(mutex);
                    wake.wait_for(lock, pause);
                }
                drain();
            }
        }).detach();
        ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }

    void drain() {
        const std::lock_guard lock(mutex);
        for (const auto& ring : rings) {
            const std::uint64_t end = ring->written.load(std::memory_order_acquire);
            std::uint64_t at = ring->read.load(std::memory_order_relaxed);
            for (; at < end; ++at) add(ring->records[at % Ring::size]);
            ring->read.store(at, std::memory_order_release);
        }
        // Rings of ended threads: only this list still holds them.
        std::erase_if(
            rings, [](const auto& ring) { return ring.use_count() == 1 && ring->read.load() == ring->written.load(); });
        flush();
    }

    void flush() {
        std::string_view rest = pending;
        while (!rest.empty()) {
            const ssize_t done = ::write(file, rest.data(), rest.size());
            if (done < 0 && errno == EINTR) continue;
            if (done <= 0) {
                if (!failed) std::fprintf(stderr, "samesum: recorded calls are lost: %s\n", std::strerror(errno));
                failed = true;
                break;
            }
            rest.remove_prefix(static_cast<std::size_t>(done));
        }
        pending.clear();
    }

    void add(const CallRecord& r) {
        constexpr std::array<std::string_view, 3> words{"forwarded", "replaced", "refused"};
        fmt::format_to(std::back_inserter(pending), "[{},{},\"{}\",{},\"{}\",\"{}\",{},\"{}\",{},{},\"{}\",{},{}]\n",
                       r.call, r.communicator, name(r.function), r.count, name(static_cast<ncclDataType_t>(r.type)),
                       adds(r.function) ? name(static_cast<ncclRedOp_t>(r.operation)) : "", r.root, r.stream, r.group,
                       r.captured, words.at(static_cast<std::size_t>(r.action)), r.in_place, 1 << r.alignment);
    }

    bool failed = false;
};

Recorder& recorder() {
    Recorder* found = current.load(std::memory_order_acquire);
    if (found != nullptr) return *found;
    static std::mutex making;
    const std::lock_guard lock(making);
    if (current.load() == nullptr) {
        static const bool once = [] {
            // A forked child has no writer thread and must not write to its parent's file.
            ::pthread_atfork(nullptr, nullptr, [] { current.store(nullptr); });
            std::atexit([] {
                Recorder* const last = current.load();
                if (last != nullptr && last->writer_ != nullptr && last->writer_->file >= 0) last->writer_->drain();
            });
            return true;
        }();
        (void)once;
        // Never destroyed: threads may outlive the end of main.
        auto* const fresh = new Recorder;
        fresh->writer_ = new Recorder::Writer;
        current.store(fresh, std::memory_order_release);
    }
    return *current.load();
}

const std::string& Recorder::error() const { return writer_->error; }

void Recorder::describe(CommunicatorState& state) {
    const std::lock_guard lock(writer_->mutex);
    if (state.described_by().load() == this) return;
    Json line{
        {"communicator", state.number()}, {"ranks", state.ranks()}, {"rank", state.rank()}, {"device", state.device()}};
    try {
        const gpu::DeviceTraits traits = gpu::device_traits(state.device());
        line["gpu"] = traits.name;
        line["compute_capability"] = traits.compute_capability;
        line["gpus_seen"] = gpu::device_count();
    } catch (const std::exception&) {
        // The call stream is useful without these fields.
        (void)cudaGetLastError();
    }
    writer_->pending += line_of(line);
    state.described_by().store(this, std::memory_order_release);
}

Recorder::Ring& Recorder::own_ring() {
    static thread_local std::shared_ptr<Ring> own;
    static thread_local Recorder* owner = nullptr;
    if (owner != this) {
        own = std::make_shared<Ring>();
        owner = this;
        const std::lock_guard lock(writer_->mutex);
        writer_->rings.push_back(own);
    }
    return *own;
}

void Recorder::record(const DataCall& call, CommunicatorState& state, Decision::Action action, std::uint64_t group) {
    if (writer_->file < 0) return;
    if (state.described_by().load(std::memory_order_acquire) != this) describe(state);
    Ring& ring = own_ring();
    const std::uint64_t at = ring.written.load(std::memory_order_relaxed);
    if (at - ring.read.load(std::memory_order_acquire) == Ring::size) writer_->drain();
    ring.records[at % Ring::size] = {
        .call = writer_->calls.fetch_add(1, std::memory_order_relaxed) + 1,
        .communicator = state.number(),
        .count = call.count,
        .group = group,
        .stream = call.stream,
        .root = call.root,
        .function = call.function,
        .type = static_cast<unsigned char>(call.type),
        .operation = static_cast<unsigned char>(std::min<unsigned>(call.operation, ncclNumOps)),
        .alignment = alignment_of(call),
        .captured = capture_of(call.stream) != 0,
        .in_place = in_place(call, state.rank()),
        .action = action,
    };
    ring.written.store(at + 1, std::memory_order_release);
}

}  // namespace samesum::dropin
