// A call takes a millisecond; all other work on a case must take less.
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/live_backend.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "model/nccl/buffer_sum.hpp"
#include "model/support/error.hpp"
#include "model/support/options.hpp"
#include "model/support/progress.hpp"

namespace samesum::fuzz {
namespace {

Rings rings_of(const Communicator& comm) {
    std::vector<Ring> rings;
    for (int channel = 0; channel < comm.channels(); ++channel) rings.push_back(comm.topology.ring(channel));
    return rings;
}

/// The same rings, whichever rank each starts at.
bool same_rings(const Rings& a, const Rings& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const Ring& x, const Ring& y) { return rotated(x, 0) == rotated(y, 0); });
}

std::string str_rings(const Rings& rings) {
    std::string text;
    for (std::size_t i = 0; i < rings.size(); ++i)
        if (i == 0 || rings[i] != rings[i - 1])
            text += fmt::format("{}{}", text.empty() ? "" : ";", fmt::join(rings[i], ","));
    return text;
}

bool scatters(const Request& request) { return dispatched(request.scheme, request.routing) == Scheme::reduce_scatter; }

bool same_run(const gpu::CombineRun& a, const gpu::CombineRun& b) {
    return a.scheme == b.scheme && a.routing == b.routing && a.format == b.format && a.root == b.root &&
           a.accumulation == b.accumulation && a.captured == b.captured && a.in_place == b.in_place &&
           a.shift == b.shift && a.delay_s == b.delay_s;
}

/// A case names only rings, nodes, version, threads, algorithm and protocol of a communicator. Are its orders the same
/// as those of NCCL's full description? Returns a call that differs; empty if none does.
std::string differs_from(const Communicator& described, const CommunicatorSetup& setup) {
    Communicator named{.topology = Topology::from_rings(setup.rings, setup.ranks_per_node), .version = setup.nccl};
    if (setup.threads > 0) named.settings.threads = named.settings.ll128_threads = setup.threads;
    for (const std::uint64_t count : {1, 1000, 20000, 100000, 300000}) {
        for (const Collective collective : {Collective::reduce, Collective::reduce_scatter}) {
            const Call call{.collective = collective, .count = count, .format = Format::bfloat16};
            const Forced forced{collective == Collective::reduce ? Algorithm::ring : setup.algorithm, setup.protocol};
            const Schedule a = plan_call(described, call, forced).schedule, b = plan_call(named, call, forced).schedule;
            bool same = a.size() == b.size() && a.segment_count() == b.segment_count();
            for (std::uint64_t element = 0; same && element < a.size(); element += 1 + a.size() / 37) {
                const Segment x = a.segment_at(element), y = b.segment_at(element);
                same = x.begin == y.begin && x.end == y.end && same_order(x.order, y.order);
            }
            if (!same) return fmt::format("{} of {} elements", name(collective), count);
        }
    }
    return {};
}

}  // namespace

LiveBackend::LiveBackend(std::unique_ptr<Ranks> ranks, std::vector<CommunicatorSetup> setups, std::string flags,
                         std::string fault)
    : ranks_(std::move(ranks)),
      setups_(std::move(setups)),
      flags_(std::move(flags)),
      fault_(std::move(fault)),
      closed_(setups_.size()) {}

void LiveBackend::open(CommunicatorSetup setup) {
    open_.reset();
    warm_.clear();
    written_.reset();
    const double began = monotonic_seconds();
    const Communicator comm = ranks_->open(setup);
    ++openings_;
    setup.rings = rings_of(comm);
    setup.nccl = comm.version;
    // If links are slow, NCCL uses half as many threads per channel in Simple, and calls fill fewer channels
    // (graph/tuning.cc, ncclTopoTuneModel).
    std::string where = differs_from(comm, setup);
    if (!where.empty()) {
        setup.threads = 256;
        where = differs_from(comm, setup);
    }
    if (!where.empty())
        throw Inconclusive(
            fmt::format("{}: the orders of its rings differ from those of NCCL's description of the "
                        "communicator: {}",
                        fuzz::str(setup), where));
    if (announced_.insert(fuzz::str(setup)).second)
        fmt::print(stderr, "samesum fuzz: {} opened in {:.2f} s: {} channels, rings {}\n", fuzz::str(setup),
                   monotonic_seconds() - began, setup.rings.size(), str_rings(setup.rings));
    open_ = std::make_shared<CommunicatorSetup>(std::move(setup));
}

std::shared_ptr<const CommunicatorSetup> LiveBackend::open_setup(std::size_t index) {
    if (!closed_.at(index).empty()) return nullptr;
    try {
        open(setups_[index]);
    } catch (const Inconclusive& reason) {
        closed_[index] = reason.what();
        fmt::print(stderr, "samesum fuzz: left out: {}: {}\n", str(setups_[index]), reason.what());
        return nullptr;
    }
    return open_;
}

std::shared_ptr<const CommunicatorSetup> LiveBackend::open_ring(int ranks) {
    CommunicatorSetup wanted;
    wanted.launch_modes = setups_.empty() || setups_.front().launch_modes;
    wanted.ranks = ranks;
    for (const CommunicatorSetup& setup : setups_)
        if (setup.ranks == ranks && setup.algorithm == Algorithm::ring && setup.protocol == Protocol::simple) {
            wanted = setup;
            break;
        }
    open(wanted);
    return open_;
}

void LiveBackend::open_for(const Request& request) {
    const auto fits = [&](const CommunicatorSetup& setup, bool with_rings) {
        if (setup.ranks != request.comm.ranks()) return false;
        if (!by_nccl(request.scheme)) return true;
        return setup.ranks_per_node == request.comm.ranks() / request.comm.nodes() &&
               setup.protocol == request.options.forced.protocol &&
               (!scatters(request) || setup.algorithm == request.algorithm) &&
               (!with_rings || (same_rings(setup.rings, rings_of(request.comm)) && setup.nccl == request.comm.version &&
                                setup.threads == request.comm.settings.threads.value_or(0)));
    };
    if (open_ && fits(*open_, true) && !request.launch_mode.fresh) return;
    if (open_ && fits(*open_, true)) return open(*open_);
    std::vector<CommunicatorSetup> candidates;
    for (const CommunicatorSetup& setup : setups_)
        if (fits(setup, false)) candidates.push_back(setup);
    if (candidates.empty()) {
        CommunicatorSetup setup;
        setup.ranks = request.comm.ranks();
        setup.ranks_per_node = request.comm.ranks() / request.comm.nodes();
        setup.algorithm = request.algorithm;
        setup.protocol = request.options.forced.protocol.value_or(Protocol::simple);
        candidates.push_back(std::move(setup));
    }
    for (const CommunicatorSetup& setup : candidates) {
        open(setup);
        if (fits(*open_, true)) return;
    }
    throw Inconclusive(
        fmt::format("these ranks have NCCL {}, {} threads (0: default) and rings {}; the case needs "
                    "NCCL {}, {} and {}",
                    str(open_->nccl), open_->threads, str_rings(open_->rings), str(request.comm.version),
                    request.comm.settings.threads.value_or(0), str_rings(rings_of(request.comm))));
}

gpu::CombineRun LiveBackend::run_of(const Request& request) const {
    gpu::CombineRun run;
    run.scheme = request.scheme;
    run.routing = request.routing;
    run.format = request.format;
    run.root = request.options.root;
    run.accumulation = request.options.accumulation;
    run.fault = fault_;
    run.captured = request.launch_mode.captured;
    run.in_place = request.launch_mode.in_place;
    run.shift = request.launch_mode.shift;
    run.delay_s = request.launch_mode.delayed ? 0.0005 : 0;
    run.digest = false;  // whole results are compared
    return run;
}

void LiveBackend::run(const gpu::CombineRun& run) {
    try {
        if (run.captured && warm_.count(run.scheme) == 0) {
            // A communicator's first call connects its ranks, which a graph cannot do.
            gpu::CombineRun first = run;
            first.captured = false;
            (void)ranks_->combine(first);
            ++calls_;
        }
        nccl_log_ = ranks_->combine(run);
        ++calls_;
        warm_.insert(run.scheme);
    } catch (const gpu::Refusal& refusal) {
        warm_.clear();
        written_.reset();
        throw Refused(refusal.what());
    } catch (const Inconclusive&) {
        // Ranks that are started again have new memory.
        open_.reset();
        written_.reset();
        throw;
    }
}

const LiveBackend::Filler& LiveBackend::filler_of(const Partials& partials) {
    const auto fits = [&](const Filler& filler) {
        return filler.format == partials.format() && filler.fill == partials.fill() &&
               filler.hidden == partials.routing().hidden && filler.ranks >= partials.ranks();
    };
    auto found = std::find_if(fillers_.begin(), fillers_.end(), fits);
    if (found == fillers_.end()) {
        constexpr std::size_t max_fillers = 64;
        if (fillers_.size() >= max_fillers)
            fillers_.erase(std::min_element(fillers_.begin(), fillers_.end(),
                                            [](const Filler& a, const Filler& b) { return a.used < b.used; }));
        Filler filler{partials.format(), partials.fill(), partials.routing().hidden, partials.ranks(), {}};
        const auto width = static_cast<std::uint64_t>(traits(filler.format).bytes());
        for (int rank = 0; rank < filler.ranks; ++rank) {
            auto& rows = filler.rows.emplace_back(Partials::filler_rows * filler.hidden * width);
            for (std::uint64_t row = 0; row < Partials::filler_rows; ++row)
                for (std::uint64_t column = 0; column < filler.hidden; ++column)
                    store(filler.format, rows, row * filler.hidden + column,
                          Partials::filler(filler.format, filler.fill, rank, row, column));
        }
        found = fillers_.insert(fillers_.end(), std::move(filler));
    }
    found->used = calls_;
    return *found;
}

std::optional<std::vector<std::uint64_t>> LiveBackend::write(const Partials& partials) {
    const Routing& routing = partials.routing();
    const auto width = static_cast<std::uint64_t>(traits(partials.format()).bytes());
    const std::uint64_t row_bytes = routing.hidden * width, rows = routing.rows(), bytes = rows * row_bytes;
    const Filler& filler = filler_of(partials);
    // The last call left the same rows, except for its token's.
    const bool same = written_ && written_->format() == partials.format() && written_->fill() == partials.fill() &&
                      written_->routing().hidden == routing.hidden && written_->routing().rows() == rows;
    std::optional<std::vector<std::uint64_t>> changed;
    if (same) changed = {written_->row(), partials.row()};
    for (int rank = 0; rank < partials.ranks(); ++rank) {
        const std::span<std::byte> buffer = ranks_->input(rank, bytes);
        const auto& from = filler.rows[static_cast<std::size_t>(rank)];
        const auto copy_row = [&](std::uint64_t row) {
            std::memcpy(buffer.data() + row * row_bytes, from.data() + row % Partials::filler_rows * row_bytes,
                        row_bytes);
        };
        if (same) {
            if (written_->row() != partials.row()) copy_row(written_->row());
        } else {
            for (std::uint64_t at = 0; at < bytes; at += from.size())
                std::memcpy(buffer.data() + at, from.data(), std::min<std::uint64_t>(from.size(), bytes - at));
        }
        for (std::uint64_t column = 0; column < routing.hidden; ++column)
            store(partials.format(), buffer, partials.row() * routing.hidden + column,
                  partials.at(rank, partials.row(), column));
    }
    written_ = partials;
    return changed;
}

std::vector<Bits> LiveBackend::combine_row(const Request& request, const Partials& partials, std::uint64_t row) {
    const gpu::CombineRun run = run_of(request);
    last_is_whole_ = false;
    const std::string here = open_ ? fuzz::str(*open_) : "";
    const auto known = std::find_if(cached_rows_.begin(), cached_rows_.end(), [&](const CachedRow& each) {
        return row == partials.row() && each.setup == here && same_run(each.run, run) && each.partials == partials;
    });
    if (known != cached_rows_.end()) {
        std::rotate(cached_rows_.begin(), known, known + 1);
        return cached_rows_.front().row;
    }
    open_for(request);
    gpu::CombineRun with_changes = run;
    with_changes.changed_rows = write(partials);
    this->run(with_changes);
    const auto width = static_cast<std::uint64_t>(traits(request.format).bytes());
    const auto result = ranks_->result(request.routing.elements() * width);
    std::vector<Bits> bits(request.routing.hidden);
    for (std::uint64_t column = 0; column < bits.size(); ++column)
        bits[column] = load(request.format, result, row * request.routing.hidden + column);
    constexpr std::size_t max_cached_rows = 2;
    if (cached_rows_.size() >= max_cached_rows) cached_rows_.pop_back();
    if (row == partials.row())
        cached_rows_.insert(cached_rows_.begin(), CachedRow{fuzz::str(*open_), run, partials, bits});
    last_is_whole_ = true;
    return bits;
}

void LiveBackend::plant(std::string_view fault) {
    fault_ = fault;
    forget_results();
}

std::optional<Element> LiveBackend::mismatch_elsewhere(const Request& request) {
    if (!last_is_whole_) return std::nullopt;
    const CombinePlan plan =
        plan_combine(request.scheme, request.comm, request.routing, request.format, request.options);
    const auto width = static_cast<std::uint64_t>(traits(request.format).bytes());
    const std::uint64_t bytes = request.routing.elements() * width;
    std::vector<ConstBytes> inputs;
    for (int rank = 0; rank < request.comm.ranks(); ++rank) inputs.emplace_back(ranks_->input(rank, bytes));
    expected_.resize(bytes);
    sum_buffers({.format = request.format, .accumulation = plan.accumulation}, plan.schedule, inputs, expected_, 1);
    const auto result = ranks_->result(bytes);
    if (std::equal(result.begin(), result.end(), expected_.begin())) return std::nullopt;
    const auto at = static_cast<std::uint64_t>(std::mismatch(result.begin(), result.end(), expected_.begin()).first -
                                               result.begin());
    return Element{at / width / request.routing.hidden, at / width % request.routing.hidden};
}

std::vector<Bits> LiveBackend::combine(const Request& request, std::span<const std::vector<Bits>> partials) {
    open_for(request);
    written_.reset();
    const auto width = static_cast<std::uint64_t>(traits(request.format).bytes());
    const std::uint64_t elements = request.routing.elements();
    for (std::size_t rank = 0; rank < partials.size(); ++rank) {
        const auto buffer = ranks_->input(static_cast<int>(rank), elements * width);
        for (std::uint64_t i = 0; i < elements; ++i) store(request.format, buffer, i, partials[rank][i]);
    }
    run(run_of(request));
    const auto result = ranks_->result(elements * width);
    std::vector<Bits> bits(elements);
    for (std::uint64_t i = 0; i < elements; ++i) bits[i] = load(request.format, result, i);
    return bits;
}

}  // namespace samesum::fuzz
