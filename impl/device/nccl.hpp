// The owner of one rank's communicator, and errors that say what NCCL said.
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

[[nodiscard]] NcclVersion nccl_version();
[[nodiscard]] ncclDataType_t nccl_type(Format format);
[[nodiscard]] ncclRedOp_t nccl_operation(Operation operation);

/// A fresh name under which ranks find each other, as hexadecimal text.
[[nodiscard]] std::string fresh_unique_id();

/// One rank's communicator on the current device. Collective: every rank makes, uses and closes its own alike.
class Communicator {
public:
    /// `id` is one rank's fresh_unique_id(), the same on all ranks.
    Communicator(int ranks, int rank, std::string_view id);
    /// The ranks of `whole` that give the same color, in their order there. Collective over `whole`.
    Communicator(const Communicator& whole, int color);
    /// One that somebody else made and frees, after this.
    explicit Communicator(ncclComm_t lent);
    /// If close() was not called: aborts, which waits for no peer, and says so on stderr.
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
    /// Calls that NCCL runs together. The group is closed even when one of them throws.
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
    /// Throws what NCCL has noticed since: a peer that went away, a network error.
    void check_async() const;
    /// Waits for outstanding work, frees, and throws NcclError when that fails.
    void close();
    /// Frees at once, waiting for nobody; for use after an error.
    void abort();

private:
    ncclComm_t comm_ = nullptr;
    int rank_ = 0, ranks_ = 0;
    bool lent_ = false;
};

}  // namespace samesum::gpu
