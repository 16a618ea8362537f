// NCCL's communicators are created and freed only here.
// SPDX-License-Identifier: Apache-2.0
#include "impl/device/nccl.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <cstring>

#include "model/support/numbers.hpp"

namespace samesum::gpu {
namespace {

std::string describe(ncclResult_t result, const char* call, int rank, ncclComm_t comm, std::source_location where) {
    const char* last = ncclGetLastError(comm);
    const std::string path = where.file_name();
    return fmt::format("{} on rank {}: {}{}{} ({}:{})", call, rank, ncclGetErrorString(result),
                       last != nullptr && *last != '\0' ? "; NCCL's last error: " : "", last != nullptr ? last : "",
                       path.substr(path.rfind('/') + 1), where.line());
}

}  // namespace

NcclError::NcclError(ncclResult_t result, const char* call, int rank, ncclComm_t comm, std::source_location where)
    : Inconclusive(describe(result, call, rank, comm, where)), code(result) {}

void check(ncclResult_t result, const char* call, int rank, ncclComm_t comm, std::source_location where) {
    if (result != ncclSuccess) throw NcclError(result, call, rank, comm, where);
}

NcclVersion nccl_version() {
    int version = 0;
    check(ncclGetVersion(&version), "ncclGetVersion", -1, nullptr);
    return {version / 10000, version / 100 % 100, version % 100};
}

NcclVersion nccl_header_version() { return {NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH}; }

ncclDataType_t nccl_type(Format format) {
    switch (format) {
        case Format::float64:
            return ncclFloat64;
        case Format::float32:
            return ncclFloat32;
        case Format::float16:
            return ncclFloat16;
        case Format::bfloat16:
            return ncclBfloat16;
        case Format::float8_e4m3:
            return ncclFloat8e4m3;
        case Format::float8_e5m2:
            return ncclFloat8e5m2;
        case Format::int8:
            return ncclInt8;
        case Format::uint8:
            return ncclUint8;
        case Format::int32:
            return ncclInt32;
        case Format::uint32:
            return ncclUint32;
        case Format::int64:
            return ncclInt64;
        case Format::uint64:
            return ncclUint64;
    }
    ensure(false, "every format has an NCCL type");
    return ncclNumTypes;
}

ncclRedOp_t nccl_operation(Operation operation) {
    switch (operation) {
        case Operation::sum:
            return ncclSum;
        case Operation::prod:
            return ncclProd;
        case Operation::min:
            return ncclMin;
        case Operation::max:
            return ncclMax;
        case Operation::avg:
            return ncclAvg;
        case Operation::premulsum:
            break;
    }
    throw UsageError("premulsum needs a communicator and a scalar: expected sum, prod, min, max or avg");
}

std::string fresh_unique_id() {
    ncclUniqueId id{};
    check(ncclGetUniqueId(&id), "ncclGetUniqueId", -1, nullptr);
    std::string text;
    for (const char byte : id.internal) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    return text;
}

Communicator::Communicator(int ranks, int rank, std::string_view text) : rank_(rank), ranks_(ranks) {
    ncclUniqueId id{};
    ensure(text.size() == 2 * sizeof id.internal, "a unique id of the right length");
    for (std::size_t i = 0; i < sizeof id.internal; ++i) {
        const auto byte = integer_in<unsigned char>(text.substr(2 * i, 2), 16);
        ensure(byte.has_value(), "a unique id in hexadecimal");
        id.internal[i] = static_cast<char>(*byte);
    }
    gpu::check(ncclCommInitRank(&comm_, ranks, id, rank), "ncclCommInitRank", rank, nullptr);
}

Communicator::Communicator(const Communicator& whole, int color) {
    whole.check(ncclCommSplit(whole.get(), color, whole.rank(), &comm_, nullptr), "ncclCommSplit");
    gpu::check(ncclCommUserRank(comm_, &rank_), "ncclCommUserRank", whole.rank(), comm_);
    gpu::check(ncclCommCount(comm_, &ranks_), "ncclCommCount", whole.rank(), comm_);
}

Communicator::Communicator(ncclComm_t borrowed) : comm_(borrowed), borrowed_(true) {
    gpu::check(ncclCommUserRank(comm_, &rank_), "ncclCommUserRank", -1, comm_);
    gpu::check(ncclCommCount(comm_, &ranks_), "ncclCommCount", rank_, comm_);
}

Communicator::~Communicator() {
    if (comm_ == nullptr || borrowed_) return;
    std::fprintf(stderr, "samesum: rank %d's communicator was not closed; aborting it\n", rank_);
    abort();
}

void Communicator::check_async() const {
    ncclResult_t state = ncclSuccess;
    check(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError");
    if (state != ncclInProgress) check(state, "an asynchronous operation");
}

void Communicator::close() {
    if (comm_ == nullptr) return;
    check(ncclCommFinalize(comm_), "ncclCommFinalize");
    const ncclComm_t comm = comm_;
    comm_ = nullptr;
    gpu::check(ncclCommDestroy(comm), "ncclCommDestroy", rank_, nullptr);
}

void Communicator::abort() {
    if (comm_ == nullptr) return;
    ncclCommAbort(comm_);
    comm_ = nullptr;
}

}  // namespace samesum::gpu
