// What our archives ask of fmt's library and this one's own use does not bring along: then no libfmt is needed to load.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

template fmt::detail::thousands_sep_result<char> fmt::detail::thousands_sep_impl<char>(fmt::detail::locale_ref);
