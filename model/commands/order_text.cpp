// Orders as letters, expressions and JSON.
// SPDX-License-Identifier: Apache-2.0
#include "model/commands/order_text.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "model/sum/draw_tree.hpp"

namespace samesum {

std::string letters(std::size_t number) {
    std::string text;
    for (++number; number > 0; number = (number - 1) / 26)
        text.insert(text.begin(), static_cast<char>('A' + (number - 1) % 26));
    return text;
}

std::string expression(const Order& order) {
    if (!order.observable()) return "not observable: " + order.why_not();
    const std::string tree = shortened(order.as_tree(), 160);
    return order.ranks() <= 64 ? tree : fmt::format("{}: {}", order.label(), tree);
}

nlohmann::ordered_json tree_json(const Order& order) {
    return order.observable() ? nlohmann::ordered_json(order.as_tree().str()) : nlohmann::ordered_json(nullptr);
}

nlohmann::ordered_json orders_json(const OrderTable& table) {
    auto orders = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < table.size(); ++i) {
        const Order& order = table.order(i);
        orders.push_back({{"letters", letters(i)}, {"label", order.label()}, {"tree", tree_json(order)}});
        if (!order.observable()) orders.back()["not_observable"] = order.why_not();
    }
    return orders;
}

std::string assumptions_text(const std::vector<std::string>& assumptions) {
    std::string text;
    for (const std::string& assumption : assumptions) text += fmt::format("assumes {}\n", assumption);
    return text;
}

}  // namespace samesum
