// A fake libsamesum-nccl for tests without a GPU: records its calls' arguments and copies this rank's own rows.
// SPDX-License-Identifier: Apache-2.0
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    char internal[128];
} UniqueId;
typedef struct {
    int ranks, rank;
    char id[16];
} Communicator;

static char calls[1 << 16];
static char error[128];
static Communicator communicators[16];
static int communicator_count;

#define RECORD(...) snprintf(calls + strlen(calls), sizeof calls - strlen(calls), __VA_ARGS__)

const char* fake_calls(void) { return calls; }
void fake_clear(void) { calls[0] = 0; }

const char* samesumLastError(void) { return error; }
const char* ncclGetErrorString(int code) { return code == 5 ? "invalid usage" : "some error"; }

int ncclGetVersion(int* version) {
    *version = 22809;
    return 0;
}

int ncclGetUniqueId(UniqueId* id) {
    memset(id, 0, sizeof *id);
    strcpy(id->internal, "fake id");
    // The last byte shows whether all 128 are passed on.
    id->internal[127] = 42;
    RECORD("unique_id\n");
    return 0;
}

int ncclCommInitRank(void** communicator, int ranks, UniqueId id, int rank) {
    Communicator* mine = &communicators[communicator_count++ % 16];
    mine->ranks = ranks;
    mine->rank = rank;
    *communicator = mine;
    RECORD("init %d of %d, id '%s' %d\n", rank, ranks, id.internal, id.internal[127]);
    return 0;
}

int ncclCommDestroy(void* communicator) {
    RECORD("destroy %d\n", ((Communicator*)communicator)->rank);
    return 0;
}

int ncclCommAbort(void* communicator) {
    RECORD("abort %d\n", ((Communicator*)communicator)->rank);
    return 0;
}

int samesumCombine(void* communicator, const char* scheme, const char* accumulation, const uint64_t* sizes, int ranks,
                   uint64_t hidden, int type, int root, const void* partial, void* result, void* stream) {
    const Communicator* mine = communicator;
    uint64_t first_row = 0;
    RECORD("combine %s %s sizes", scheme, accumulation);
    for (int rank = 0; rank < ranks; ++rank) {
        RECORD(" %llu", (unsigned long long)sizes[rank]);
        if (rank < mine->rank) first_row += sizes[rank];
    }
    RECORD(" hidden %llu type %d root %d stream %llu\n", (unsigned long long)hidden, type, root,
           (unsigned long long)(uintptr_t)stream);
    error[0] = 0;
    if (!strcmp(scheme, "reduce_per_owner")) {
        strcpy(error, "this rank's link is down");
        return 4;
    }
    if (!strcmp(scheme, "reduce_broadcast")) return 5;
    const uint64_t bytes = hidden * (type == 10 || type == 11 ? 1 : type == 6 || type == 9 ? 2 : type == 7 ? 4 : 8);
    memmove(result, (const char*)partial + first_row * bytes, sizes[mine->rank] * bytes);
    return 0;
}
