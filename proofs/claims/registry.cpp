// The table of every obligation, in a reader's order.
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "proofs/claims/claims.hpp"

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

}  // namespace samesum
