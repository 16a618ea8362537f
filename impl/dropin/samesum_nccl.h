/* What libsamesum-nccl.so.2 offers beside NCCL's own API: samesum's combines, for callers in any language. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SAMESUM_NCCL_H_
#define SAMESUM_NCCL_H_

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Adds the ranks' partials and gives each rank its own rows.
 *
 * comm: made by this library's ncclCommInitRank or its kin. scheme: a name of samesum's table ("fixed_root",
 * "exchange_ordered", "direct_ordered", ...) or "auto", the fastest ordered one. accumulation: "per_hop" or
 * "fp32_once". sizes: rows of each of the `ranks` ranks. partial: [sum of sizes, hidden] elements of `type`. result:
 * [sizes[rank], hidden]; may be those rows of `partial`, else must not overlap it. root: of fixed_root and
 * reduce_broadcast, else 0.
 *
 * Everything is put on `stream`; the first call of direct_ordered or "auto" on a communicator also waits for the other
 * ranks, and so cannot be captured into a CUDA graph; later ones can. All ranks call with the same arguments but for
 * the two buffers and the stream, and not inside ncclGroupStart and ncclGroupEnd.
 *
 * Errors: ncclInvalidUsage for what the scheme does not take, ncclUnhandledCudaError, else what NCCL answered;
 * samesumLastError() has the reason. */
ncclResult_t samesumCombine(ncclComm_t comm, const char* scheme, const char* accumulation, const uint64_t* sizes,
                            int ranks, uint64_t hidden, ncclDataType_t type, int root, const void* partial,
                            void* result, cudaStream_t stream);

/* Why the last call of this thread was refused or failed, in one line; "" when none was. Valid until the thread's next
 * call. */
const char* samesumLastError(void);

#ifdef __cplusplus
}
#endif

#endif
