// Monte Carlo in blocks; each has its own generator and is summed as whole buffers.
// SPDX-License-Identifier: Apache-2.0
#include "model/analysis/changed_share.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "model/nccl/buffer_sum.hpp"
#include "model/support/error.hpp"
#include "model/support/numbers.hpp"

namespace samesum {
namespace {

constexpr std::array<std::string_view, 4> kinds{"normal", "uniform", "spread", "integer"};
constexpr std::uint64_t block_size = 4096;

/// The results of one way to add, bit by bit.
class Sums {
public:
    Sums(const Way& way, std::span<const ConstBytes> inputs, std::size_t count)
        : bytes_(count * static_cast<std::size_t>(traits(way.rule.format).bytes())) {
        sum_buffers(way.rule, way.tree, inputs, bytes_, 1);
    }
    [[nodiscard]] Bits at(Format format, std::size_t i) const { return load(format, bytes_, i); }

private:
    std::vector<std::byte> bytes_;
};

}  // namespace

Bits DataModel::draw(Format format, Random& random) const {
    switch (kind) {
        case Kind::normal:
            return from_double(format, random.normal() * parameter);
        case Kind::uniform:
            return from_double(format, (2 * random.uniform() - 1) * parameter);
        case Kind::spread:
            return random.spread(format, static_cast<int>(parameter));
        default:
            return from_double(format, static_cast<double>(random.below(static_cast<std::uint64_t>(parameter) + 1)));
    }
}

DataModel parse_data_model(std::string_view text) {
    const std::size_t colon = std::min(text.find(':'), text.size());
    const auto kind = std::find(kinds.begin(), kinds.end(), text.substr(0, colon));
    const auto fail = [&] {
        throw UsageError(
            fmt::format("data model '{}': expected normal[:DEVIATION], uniform[:LIMIT], spread[:EXPONENTS] or "
                        "integer[:LARGEST]",
                        text));
    };
    if (kind == kinds.end()) fail();
    DataModel model;
    model.kind = static_cast<DataModel::Kind>(kind - kinds.begin());
    if (model.kind == DataModel::Kind::spread) model.parameter = 10;
    if (model.kind == DataModel::Kind::integer) model.parameter = 7;
    if (colon == text.size()) return model;
    model.parameter = real_in(text.substr(colon + 1)).value_or(0);
    if (!(model.parameter > 0) || model.parameter > 1e300) fail();
    if (model.kind >= DataModel::Kind::spread &&
        (model.parameter > 1e6 || model.parameter != std::floor(model.parameter)))
        fail();
    return model;
}

std::string str(const DataModel& model) {
    return fmt::format("{}:{:g}", kinds.at(static_cast<std::size_t>(model.kind)), model.parameter);
}

double Share::value() const { return samples ? static_cast<double>(changed) / static_cast<double>(samples) : 0; }

double Share::error() const {
    if (samples == 0) return 1;
    const double n = static_cast<double>(samples);
    const double p = std::clamp(value(), 1 / n, 1 - 1 / n);
    return std::sqrt(std::max(p * (1 - p), 0.0) / n);
}

Share changed_share(const Way& before, const Way& after, const DataModel& data, std::uint64_t samples,
                    std::uint64_t seed) {
    const Format format = before.rule.format;
    ensure(format == after.rule.format, "both ways to add have the same format");
    const std::vector<int> leaves = before.tree.leaves(), others = after.tree.leaves();
    const auto ranks = static_cast<std::size_t>(
        1 + std::max(*std::max_element(leaves.begin(), leaves.end()), *std::max_element(others.begin(), others.end())));
    Share share{samples, 0};
    std::vector<std::vector<std::byte>> inputs(ranks);
    for (std::uint64_t begin = 0; begin < samples; begin += block_size) {
        const auto count = static_cast<std::size_t>(std::min(block_size, samples - begin));
        Random random = Random::of(seed, begin / block_size);
        std::vector<ConstBytes> views;
        for (auto& input : inputs) {
            input.resize(count * static_cast<std::size_t>(traits(format).bytes()));
            for (std::size_t i = 0; i < count; ++i) store(format, input, i, data.draw(format, random));
            views.emplace_back(input);
        }
        const Sums first(before, views, count), second(after, views, count);
        for (std::size_t i = 0; i < count; ++i) share.changed += first.at(format, i) != second.at(format, i);
    }
    return share;
}

std::vector<OrderPair> order_pairs(const Schedule& before, const Schedule& after, std::size_t max) {
    if (before.size() != after.size() || before.ranks() != after.ranks())
        throw UsageError(
            fmt::format("the calls differ in size ({} elements of {} ranks, {} of {}): their elements "
                        "cannot be compared",
                        before.size(), before.ranks(), after.size(), after.ranks()));
    std::map<std::pair<ReductionTree, ReductionTree>, std::uint64_t> pairs;
    for (std::uint64_t element = 0; element < before.size();) {
        const Segment a = before.segment_at(element), b = after.segment_at(element);
        const std::uint64_t end = std::min(a.end, b.end);
        pairs[{a.order.as_tree().canonical(), b.order.as_tree().canonical()}] += end - element;
        if (pairs.size() > max) throw Inconclusive(fmt::format("the two calls have more than {} pairs of orders", max));
        element = end;
    }
    std::vector<OrderPair> found;
    for (const auto& [trees, elements] : pairs) found.push_back({trees.first, trees.second, elements});
    return found;
}

}  // namespace samesum
