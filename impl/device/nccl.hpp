// One rank's communicator and its owner, and errors that hold NCCL's own message.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <source_location>
#include <string>
#include <string_view>

#include "model/arithmetic/format.hpp"
#include "model/nccl/call.hpp"
#include "model/support/error.hpp"

namespace samesum::gpu {

/// An NCCL call failed on one rank.
struct NcclError : Inconclusive {
    NcclError(ncclResult_t result, const char* call, int rank, ncclComm_t comm, std::source_location where);
    ncclResult_t code;
};
void check(ncclResult_t result, const char* call, int rank, ncclComm_t comm,
           std::source_location where = std::source_location::current());

/// Of the library that is loaded, and of the header that samesum was built with.
[[nodiscard]] NcclVersion nccl_version();
[[nodiscard]] NcclVersion nccl_header_version();
[[nodiscard]] ncclDataType_t nccl_type(Format format);
[[nodiscard]] ncclRedOp_t nccl_operation(Operation operation);

/// A new ncclUniqueId as hexadecimal text.
[[nodiscard]] std::string fresh_unique_id();

/// One rank's communicator on the current device. Collective: every rank creates, uses and closes its own alike.
class Communicator {
public:
    /// `id` is one rank's fresh_unique_id(), the same on all ranks.
    Communicator(int ranks, int rank, std::string_view id);
    /// The ranks of `whole` that give the same color, in their order there. Collective over `whole`.
    Communicator(const Communicator& whole, int color);
    /// A communicator of the caller, who frees it after this object is gone.
    explicit Communicator(ncclComm_t borrowed);
    /// If close() was not called: aborts, which waits for no peer, and reports that on stderr.
    ~Communicator();
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;

    [[nodiscard]] ncclComm_t get() const { return comm_; }
    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int ranks() const { return ranks_; }
    void check(ncclResult_t result, const char* call,
               std::source_location where = std::source_location::current()) const {
        gpu::check(result, call, rank_, comm_, where);
    }
    /// Calls that NCCL runs together. The group is closed even when a call throws.
    template <class Calls>
    void group(const Calls& calls) const {
        check(ncclGroupStart(), "ncclGroupStart");
        try {
            calls();
        } catch (...) {
            (void)ncclGroupEnd();
            throw;
        }
        check(ncclGroupEnd(), "ncclGroupEnd");
    }
    /// Throws NcclError for an asynchronous error: a peer that is gone, a network error.
    void check_async() const;
    /// Waits for outstanding work, then frees. Throws NcclError when that fails.
    void close();
    /// Frees at once without waiting for peers; for use after an error.
    void abort();

private:
    ncclComm_t comm_ = nullptr;
    int rank_ = 0, ranks_ = 0;
    bool borrowed_ = false;
};

}  // namespace samesum::gpu
