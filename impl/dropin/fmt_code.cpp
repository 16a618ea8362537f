// Instantiates the function of fmt that our archives need and header-only fmt does not: then no libfmt is loaded.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

template fmt::detail::thousands_sep_result<char> fmt::detail::thousands_sep_impl<char>(fmt::detail::locale_ref);
