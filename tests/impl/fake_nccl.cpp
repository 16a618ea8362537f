// A fake libnccl.so.2 for tests without a GPU: records every call and returns what the test sets.
// SPDX-License-Identifier: Apache-2.0
//
// Every function takes eight words and records them; words beyond its real parameters are undefined. FAKE_RANKS > 0
// also simulates a communicator of that many ranks, of which this one is FAKE_RANK. FAKE_FAIL names a function that
// returns ncclRemoteError. FAKE_BUSY is how often a nonblocking communicator returns ncclInProgress. With FAKE_QUIET
// nothing is recorded. FAKE_VERSION is the version that ncclGetVersion gives. With FAKE_FULL_ID the unique id has no
// zero bytes at its end. FAKE_BLOCK names a function that does not return before fake_release() is called.
#include <array>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace {

using Word = long;
struct Id {
    char bytes[128];
};

std::string& received() {
    static auto& text = *new std::string;
    return text;
}

bool is_set_to(const char* key, const char* value) {
    const char* found = std::getenv(key);
    return found != nullptr && std::strcmp(found, value) == 0;
}
int number(const char* key) {
    const char* found = std::getenv(key);
    return found != nullptr ? std::atoi(found) : 0;
}
bool simulates_communicator() { return number("FAKE_RANKS") > 0; }

constexpr int success = 0, remote_error = 6, in_progress = 7;
int busy = 0;
bool released = false;

/// Held wherever the variables above are used.
std::mutex& guard() {
    static auto& mutex = *new std::mutex;
    return mutex;
}
/// Signalled when a call is received and when fake_release() is called.
std::condition_variable& changed() {
    static auto& condition = *new std::condition_variable;
    return condition;
}

int receive(const char* name, const std::array<Word, 8>& words) {
    static const bool quiet = number("FAKE_QUIET") > 0;
    if (quiet) return success;
    std::unique_lock lock(guard());
    received() += name;
    for (const Word word : words) received() += " " + std::to_string(static_cast<int>(word));
    received() += "\n";
    changed().notify_all();
    if (is_set_to("FAKE_BLOCK", name)) changed().wait(lock, [] { return released; });
    if (is_set_to("FAKE_FAIL", name)) return remote_error;
    const std::string_view called = name;
    const bool at_once = called == "ncclCommGetAsyncError" || called == "ncclGroupStart" || called == "ncclGetUniqueId";
    if (simulates_communicator() && number("FAKE_BUSY") > 0 && !at_once) {
        busy = number("FAKE_BUSY");
        return in_progress;
    }
    return success;
}

/// A new communicator's address.
void make(Word comm) {
    static Word address = 0x1000;
    if (simulates_communicator()) *reinterpret_cast<Word*>(comm) = address += 0x10;
}
int store(Word place, int value) {
    if (simulates_communicator()) *reinterpret_cast<int*>(place) = value;
    return success;
}

}  // namespace

#define FAKE(name)                                                                        \
    extern "C" int name(Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h) { \
        return receive(#name, {a, b, c, d, e, f, g, h});                                  \
    }

FAKE(ncclMemAlloc)
FAKE(ncclMemFree)
FAKE(ncclCommFinalize)
FAKE(ncclCommDestroy)
FAKE(ncclCommAbort)
FAKE(ncclCommRevoke)
FAKE(ncclResetDebugInit)
FAKE(ncclCommRegister)
FAKE(ncclCommDeregister)
FAKE(ncclCommWindowRegister)
FAKE(ncclCommWindowDeregister)
FAKE(ncclRedOpCreatePreMulSum)
FAKE(ncclRedOpDestroy)
FAKE(ncclReduce)
FAKE(ncclBcast)
FAKE(ncclBroadcast)
FAKE(ncclAllReduce)
FAKE(ncclReduceScatter)
FAKE(ncclAllGather)
#ifndef FAKE_OLD
FAKE(ncclAlltoAll)
FAKE(ncclGather)
FAKE(ncclScatter)
FAKE(ncclCommShrink)
#endif
FAKE(ncclSend)
FAKE(ncclRecv)
FAKE(ncclGroupStart)
FAKE(ncclGroupEnd)
FAKE(ncclGroupSimulateEnd)

extern "C" {

int ncclGetUniqueId(Word place) {
    if (simulates_communicator()) *reinterpret_cast<Id*>(place) = {{'A', number("FAKE_FULL_ID") > 0 ? 'B' : '\0'}};
    if (simulates_communicator() && number("FAKE_FULL_ID") > 0) reinterpret_cast<Id*>(place)->bytes[127] = 'C';
    return receive("ncclGetUniqueId", {place});
}
int ncclGetVersion(Word place) {
    (void)receive("ncclGetVersion", {place});
    return store(place, number("FAKE_VERSION"));
}
int ncclCommCount(Word comm, Word place) {
    (void)receive("ncclCommCount", {comm, place});
    return store(place, number("FAKE_RANKS"));
}
int ncclCommUserRank(Word comm, Word place) {
    (void)receive("ncclCommUserRank", {comm, place});
    return store(place, number("FAKE_RANK"));
}
int ncclCommCuDevice(Word comm, Word place) {
    const int result = receive("ncclCommCuDevice", {comm, place});
    (void)store(place, 0);
    return result == remote_error ? result : success;
}
int ncclCommGetAsyncError(Word comm, Word place) {
    (void)receive("ncclCommGetAsyncError", {comm, place});
    const std::lock_guard lock(guard());
    return store(place, busy > 0 && --busy > 0 ? in_progress : success);
}
const char* ncclGetErrorString(int result) { return result == success ? "fake: no error" : "fake: an error"; }
const char* ncclGetLastError(Word) { return "fake: the last error"; }

int ncclCommInitRank(Word comm, int ranks, Id id, int rank) {
    make(comm);
    return receive("ncclCommInitRank", {comm, ranks, id.bytes[0], rank});
}
int ncclCommInitRankConfig(Word comm, int ranks, Id id, int rank, Word config) {
    make(comm);
    return receive("ncclCommInitRankConfig", {comm, ranks, id.bytes[0], rank, config});
}
int ncclCommInitAll(Word comms, Word devices, Word list) {
    for (Word i = 0; simulates_communicator() && i < devices; ++i) make(comms + i * Word{sizeof(Word)});
    return receive("ncclCommInitAll", {comms, devices, list});
}
int ncclCommInitRankScalable(Word comm, Word b, Word c, Word d, Word e, Word f) {
    make(comm);
    return receive("ncclCommInitRankScalable", {comm, b, c, d, e, f});
}
int ncclCommSplit(Word comm, Word color, Word key, Word address, Word config) {
    make(address);
    return receive("ncclCommSplit", {comm, color, key, address, config});
}

/// The calls received since the last call of this function, a line each; valid until the next.
const char* fake_calls() {
    static std::string returned;
    const std::lock_guard lock(guard());
    returned = std::exchange(received(), {});
    return returned.c_str();
}

/// Waits until a call of this name is received, counted from the last fake_calls().
void fake_wait_for(const char* name) {
    std::unique_lock lock(guard());
    changed().wait(lock, [&] { return received().find(std::string(name) + " ") != std::string::npos; });
}

/// Lets the calls that FAKE_BLOCK names return.
void fake_release() {
    const std::lock_guard lock(guard());
    released = true;
    changed().notify_all();
}
}
