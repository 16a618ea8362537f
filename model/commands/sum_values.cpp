// Values as bit patterns, with their decimal value beside them.
// SPDX-License-Identifier: Apache-2.0
#include "model/commands/sum_values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace samesum {

std::vector<Bits> values_in(Format format, std::string_view text) {
    std::vector<Bits> values;
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t end = std::min(text.find_first_of(" ,\t\n", i), text.size());
        if (end > i) values.push_back(parse_value(format, text.substr(i, end - i)));
        i = end + 1;
    }
    if (values.empty()) throw UsageError("--values holds no value: expected e.g. --values '1 0.5 0x3f80'");
    return values;
}

std::string value_text(Format format, Bits bits) {
    return fmt::format("{} ({})", hex(format, bits), decimal(format, bits));
}

nlohmann::ordered_json value_json(Format format, Bits bits) {
    return {{"bits", hex(format, bits)}, {"value", decimal(format, bits)}};
}

po::typed_value<std::string>* word(const char* fallback, const char* shown_as) {
    return po::value<std::string>()->default_value(fallback)->value_name(shown_as);
}

po::typed_value<std::string>* word(const char* shown_as) { return po::value<std::string>()->value_name(shown_as); }

ReachableOptions limits_in(const Options& options) {
    const std::string shape = options.get<std::string>("shape");
    if (shape != "any" && shape != "chain") throw UsageError(fmt::format("--shape '{}': expected any or chain", shape));
    return {.shapes = shape == "any" ? Shapes::trees : Shapes::chains, .seconds = options.get<double>("seconds")};
}

}  // namespace samesum
