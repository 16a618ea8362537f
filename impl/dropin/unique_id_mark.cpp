// The mark is text in the id's last 32 bytes: "samesum:ordered,fp32_once", or zeros under a policy that replaces
// nothing.
// SPDX-License-Identifier: Apache-2.0
#include "impl/dropin/unique_id_mark.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "impl/dropin/policy.hpp"
#include "impl/dropin/thread_state.hpp"

namespace samesum::dropin {
namespace {

constexpr std::size_t mark_bytes = 32;
constexpr std::string_view prefix = "samesum:";

/// The magic number (8 bytes) and the address family (2 bytes) of the rank that made the id. NCCL refuses at once to
/// connect to a family that it does not know (2.28.9, bootstrap.h, ncclSocketInit in socket.cc).
constexpr std::size_t hidden_bytes = 10;
void hide_address(ncclUniqueId& id) {
    constexpr unsigned char pattern = 0x5a;
    for (std::size_t i = 0; i < hidden_bytes; ++i)
        id.internal[i] = static_cast<char>(static_cast<unsigned char>(id.internal[i]) ^ pattern);
}

std::string own_mark() {
    const Configuration& settings = configuration();
    if (!settings.replaces()) return std::string(mark_bytes, '\0');
    std::string mark = fmt::format("{}{}{}", prefix, name(settings.policy),
                                   settings.accumulation == Accumulation::fp32_once ? ",fp32_once" : "");
    mark.resize(mark_bytes);
    return mark;
}

std::string mark_in(const ncclUniqueId& id) { return {std::end(id.internal) - mark_bytes, std::end(id.internal)}; }

/// "ordered,fp32_once"
std::string policy_in(const std::string& mark) {
    return mark[0] == '\0' ? "no replacing policy" : std::string(mark.c_str() + prefix.size());
}

}  // namespace

ncclResult_t mark_unique_id(ncclUniqueId* id) {
    if (is_internal() || id == nullptr || !configuration().replaces()) return ncclSuccess;
    const std::string unused(mark_bytes, '\0'), own = own_mark();
    if (mark_in(*id) != unused)
        return report_error(ncclSystemError,
                            "the last bytes of NCCL's unique id, which carry the policy, are in use; expected "
                            "SAMESUM_POLICY=observe, or NCCL 2.27 to 2.30");
    std::copy(own.begin(), own.end(), std::end(id->internal) - mark_bytes);
    hide_address(*id);
    return ncclSuccess;
}

ncclUniqueId plain_unique_id(ncclUniqueId id) {
    if (is_internal() || !mark_in(id).starts_with(prefix)) return id;
    hide_address(id);
    std::fill(std::end(id.internal) - mark_bytes, std::end(id.internal), '\0');
    return id;
}

ncclResult_t check_unique_id(const ncclUniqueId& id) {
    const std::string found = mark_in(id), own = own_mark();
    const bool marked = found.starts_with(prefix);
    if (is_internal() || found == own || (!marked && !configuration().replaces())) return ncclSuccess;
    return report_error(
        ncclInvalidArgument,
        fmt::format("SAMESUM_POLICY differs: {} on the rank that made the unique id, {} on this rank; "
                    "expected this library and the same policy on every rank",
                    marked ? policy_in(found) : "no replacing policy, or not this library", policy_in(own)));
}

}  // namespace samesum::dropin
