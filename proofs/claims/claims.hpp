// The claims by subject. Each function returns its obligations in a reader's order.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "model/arithmetic/format.hpp"
#include "model/sum/reduction_tree.hpp"
#include "proofs/engine/obligation.hpp"

namespace samesum {

/// One addition, and trees of additions: addition.cpp.
[[nodiscard]] std::vector<Obligation> claims_of_addition();
/// What the schemes promise, given NCCL's orders: schemes.cpp.
[[nodiscard]] std::vector<Obligation> claims_of_schemes();
/// Which bytes impl's index arithmetic moves where: indexing.cpp.
[[nodiscard]] std::vector<Obligation> claims_of_indexing();
/// The model of NCCL's partition assigns every element once: partition.cpp.
[[nodiscard]] std::vector<Obligation> claims_of_partition();
/// Rings, trees and PAT add each rank once: trees.cpp.
[[nodiscard]] std::vector<Obligation> claims_of_trees();
/// How much an order can change a sum: rounding.cpp.
[[nodiscard]] std::vector<Obligation> claims_of_rounding();
/// Claims that are false, impossible or out of reach, and must not be upheld: canaries.cpp.
[[nodiscard]] std::vector<Obligation> canaries();

/// "Both trees give the same bits for all leaves", in one format. Counterexamples are evaluated in the model and shown
/// with small values.
[[nodiscard]] Statement same_bits(std::string name, const ReductionTree& a, const ReductionTree& b, Format format);
/// The same for any commutative addition: all trees give the same result.
[[nodiscard]] Statement same_for_any_addition(std::string name, const std::vector<ReductionTree>& trees);

}  // namespace samesum
