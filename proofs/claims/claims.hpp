// The claims by subject. Each function returns its obligations in a reader's order.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "model/arithmetic/format.hpp"
#include "model/sum/reduction_tree.hpp"
#include "proofs/engine/obligation.hpp"

namespace samesum {

/// What one addition does, and what a tree of them does: addition.cpp.
[[nodiscard]] std::vector<Obligation> claims_of_addition();
/// What the ways to combine promise, from NCCL's orders: schemes.cpp.
[[nodiscard]] std::vector<Obligation> claims_of_schemes();
/// What impl's index arithmetic moves where: indexing.cpp.
[[nodiscard]] std::vector<Obligation> claims_of_indexing();
/// NCCL's partition, as the model has it, gives every element to exactly one channel: partition.cpp.
[[nodiscard]] std::vector<Obligation> claims_of_partition();
/// That rings, trees and PAT add each rank once: trees.cpp.
[[nodiscard]] std::vector<Obligation> claims_of_trees();
/// What an order can do to a sum at most: rounding.cpp.
[[nodiscard]] std::vector<Obligation> claims_of_rounding();
/// False on purpose, impossible, or out of reach: claims that must not come out green. canaries.cpp.
[[nodiscard]] std::vector<Obligation> canaries();

/// "Both trees give the same bits whatever the leaves are", in one format. Its counterexamples are evaluated in the
/// model and shown by small values.
[[nodiscard]] Statement same_bits(std::string name, const ReductionTree& a, const ReductionTree& b, Format format);
/// The same of an addition that commutes and of which nothing else is known: all the trees give one result.
[[nodiscard]] Statement same_for_any_addition(std::string name, const std::vector<ReductionTree>& trees);

}  // namespace samesum
