// How the order commands write orders and assumptions.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "model/analysis/order_diff.hpp"
#include "model/nccl/order.hpp"

namespace samesum {

/// The name of an order in a table: A, B, ..., Z, AA, AB, ...
[[nodiscard]] std::string letters(std::size_t number);

/// The tree, shortened; above 64 ranks with its label in front; or why the order is not observable.
[[nodiscard]] std::string expression(const Order& order);

/// The same for programs: the whole tree, null when not observable.
[[nodiscard]] nlohmann::ordered_json tree_json(const Order& order);

/// Each order of a table: its letters, label and tree, and why it is not observable.
[[nodiscard]] nlohmann::ordered_json orders_json(const OrderTable& table);

/// A line for each assumption: "assumes ...".
[[nodiscard]] std::string assumptions_text(const std::vector<std::string>& assumptions);

}  // namespace samesum
