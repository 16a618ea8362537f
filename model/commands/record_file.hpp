// Files of records, one JSON object a line.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "model/input/recording.hpp"

namespace samesum {

/// Calls visit(record, line number) for each record of the file ("-": stdin). Throws UsageError naming file and line
/// when a line is not a record.
void for_each_record(const std::string& file, const std::function<void(const Record&, std::size_t)>& visit);

}  // namespace samesum
