/* The C interface of libsamesum-nccl.so.2 beside NCCL's own API: samesum's combines, for callers in any language. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SAMESUM_NCCL_H_
#define SAMESUM_NCCL_H_

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Environment, read once: SAMESUM_TIMEOUT_S, whole seconds, 1 to 604800, 600 if unset: how long this library waits for
 * a nonblocking communicator that returns ncclInProgress, and, when a communicator is finalized or destroyed, for the
 * last kernel of direct_ordered. Then an error names the variable. Kernels wait for their peers, as NCCL's do, until
 * ncclCommAbort or ncclCommRevoke ends them.
 *
 * direct_ordered's kernels of one process run one after the other on a device, those of graphs included, in the order
 * in which they or their graphs were launched. All ranks must launch them in the same order, as NCCL asks of operations
 * on several communicators. */

/* Adds the ranks' partials and gives each rank its own rows.
 *
 * comm: made by this library's ncclCommInitRank or another of its functions that make communicators.
 *
 * scheme: "reduce_scatter", "reduce_per_owner", "vllm_default", "fixed_root", "reduce_broadcast", "gather_ordered",
 * "exchange_ordered", "direct_ordered", "exact", or "auto" for the fastest scheme that adds in rank order.
 * accumulation: "per_hop" or "fp32_once". root: of fixed_root and reduce_broadcast, else 0.
 *
 * sizes: rows of each of the `ranks` ranks. partial: [sum of sizes, hidden] elements of `type`. result: [sizes[rank],
 * hidden]; may be this rank's rows of `partial`, else must not overlap `partial`.
 *
 * All work is put on `stream`. The first call of direct_ordered or "auto" on a communicator also waits for the other
 * ranks and cannot be captured into a CUDA graph; later calls can. All ranks must pass the same arguments, except for
 * the two buffers and the stream. Must not be called between ncclGroupStart and ncclGroupEnd.
 *
 * Returns ncclInvalidUsage for arguments that the scheme does not take, ncclUnhandledCudaError for an error of CUDA,
 * else NCCL's result; samesumLastError() describes an error. */
ncclResult_t samesumCombine(ncclComm_t comm, const char* scheme, const char* accumulation, const uint64_t* sizes,
                            int ranks, uint64_t hidden, ncclDataType_t type, int root, const void* partial,
                            void* result, cudaStream_t stream);

/* The last error of this thread, in one line; "" without one. Valid until the thread's next call. */
const char* samesumLastError(void);

#ifdef __cplusplus
}
#endif

#endif
