// Stands in for NVIDIA's libnccl.so.2 where there is no GPU: writes down every call, answers what the test asks for.
// SPDX-License-Identifier: Apache-2.0
//
// Every function takes eight words and notes them; those beyond its real parameters are whatever lay there. With
// FAKE_RANKS it also plays a communicator of so many ranks (this one: FAKE_RANK). FAKE_FAIL names a function that
// answers ncclRemoteError; FAKE_BUSY is how often a communicator that does not block answers that it is in progress;
// with FAKE_QUIET nothing is noted; FAKE_VERSION is what it gives as its release.
#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

namespace {

using Word = long;
struct Id {
    char bytes[128];
};

std::string& notes() {
    static auto& text = *new std::string;
    return text;
}

bool is(const char* key, const char* value) {
    const char* found = std::getenv(key);
    return found != nullptr && std::strcmp(found, value) == 0;
}
int number(const char* key) {
    const char* found = std::getenv(key);
    return found != nullptr ? std::atoi(found) : 0;
}
bool plays() { return number("FAKE_RANKS") > 0; }

constexpr int success = 0, remote_error = 6, in_progress = 7;
int busy = 0;

int note(const char* name, const std::array<Word, 8>& words) {
    static const bool quiet = number("FAKE_QUIET") > 0;
    if (quiet) return success;
    notes() += name;
    for (const Word word : words) notes() += " " + std::to_string(static_cast<int>(word));
    notes() += "\n";
    if (is("FAKE_FAIL", name)) return remote_error;
    const std::string_view called = name;
    const bool at_once = called == "ncclCommGetAsyncError" || called == "ncclGroupStart" || called == "ncclGetUniqueId";
    if (plays() && number("FAKE_BUSY") > 0 && !at_once) {
        busy = number("FAKE_BUSY");
        return in_progress;
    }
    return success;
}

/// A new communicator's address.
void make(Word comm) {
    static Word made = 0x1000;
    if (plays()) *reinterpret_cast<Word*>(comm) = made += 0x10;
}
int answer(Word place, int value) {
    if (plays()) *reinterpret_cast<int*>(place) = value;
    return success;
}

}  // namespace

#define FAKE(name)                                                                        \
    extern "C" int name(Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h) { \
        return note(#name, {a, b, c, d, e, f, g, h});                                     \
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
    if (plays()) *reinterpret_cast<Id*>(place) = {{'A', number("FAKE_FULL_ID") > 0 ? 'B' : '\0'}};
    if (plays() && number("FAKE_FULL_ID") > 0) reinterpret_cast<Id*>(place)->bytes[127] = 'C';
    return note("ncclGetUniqueId", {place});
}
int ncclGetVersion(Word place) {
    (void)note("ncclGetVersion", {place});
    return answer(place, number("FAKE_VERSION"));
}
int ncclCommCount(Word comm, Word place) {
    (void)note("ncclCommCount", {comm, place});
    return answer(place, number("FAKE_RANKS"));
}
int ncclCommUserRank(Word comm, Word place) {
    (void)note("ncclCommUserRank", {comm, place});
    return answer(place, number("FAKE_RANK"));
}
int ncclCommCuDevice(Word comm, Word place) {
    const int result = note("ncclCommCuDevice", {comm, place});
    (void)answer(place, 0);
    return result == remote_error ? result : success;
}
int ncclCommGetAsyncError(Word comm, Word place) {
    (void)note("ncclCommGetAsyncError", {comm, place});
    return answer(place, busy > 0 && --busy > 0 ? in_progress : success);
}
const char* ncclGetErrorString(int result) { return result == success ? "fake: no error" : "fake: an error"; }
const char* ncclGetLastError(Word) { return "fake: the last error"; }

int ncclCommInitRank(Word comm, int ranks, Id id, int rank) {
    make(comm);
    return note("ncclCommInitRank", {comm, ranks, id.bytes[0], rank});
}
int ncclCommInitRankConfig(Word comm, int ranks, Id id, int rank, Word config) {
    make(comm);
    return note("ncclCommInitRankConfig", {comm, ranks, id.bytes[0], rank, config});
}
int ncclCommInitAll(Word comms, Word devices, Word list) {
    for (Word i = 0; plays() && i < devices; ++i) make(comms + i * Word{sizeof(Word)});
    return note("ncclCommInitAll", {comms, devices, list});
}
int ncclCommInitRankScalable(Word comm, Word b, Word c, Word d, Word e, Word f) {
    make(comm);
    return note("ncclCommInitRankScalable", {comm, b, c, d, e, f});
}
int ncclCommSplit(Word comm, Word color, Word key, Word made, Word config) {
    make(made);
    return note("ncclCommSplit", {comm, color, key, made, config});
}

/// All that was called so far, a line each; forgotten with the next call of this.
const char* fake_notes() {
    static std::string taken;
    taken = std::exchange(notes(), {});
    return taken.c_str();
}
}
