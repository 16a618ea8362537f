// Environment variables, by name.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <string>

namespace samesum {

using Environment = std::map<std::string, std::string, std::less<>>;

}  // namespace samesum
