// The table of every obligation, and of what the claims assume about NCCL.
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "proofs/claims.hpp"

namespace samesum {

const std::vector<Obligation>& obligations() {
    static const std::vector<Obligation> table = [] {
        std::vector<Obligation> all;
        for (const auto part : {claims_of_addition, claims_of_rounding, claims_of_schemes, claims_of_trees,
                                claims_of_partition, claims_of_indexing, canaries})
            for (Obligation& each : part()) all.push_back(std::move(each));
        return all;
    }();
    return table;
}

const std::vector<NcclAssumption>& nccl_assumptions() {
    static const std::vector<NcclAssumption> table{
        {"one_ring", "all channels that a call uses have one ring, walked from the root, up to its first two members",
         "samesum reveal --collective reduce; samesum order lint"},
        {"reduce_is_a_ring", "ncclReduce adds along each channel's ring, from the root's successor to the root",
         "samesum reveal --collective reduce"},
        {"delivers_bytes", "send, receive, all-gather and broadcast move bytes and change none",
         "samesum run --scheme exchange_ordered"}};
    return table;
}

}  // namespace samesum
