// Owners of CUDA's handles, and errors that name the call that failed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <source_location>
#include <string>

#include "model/support/error.hpp"

namespace samesum::gpu {

/// A CUDA call failed.
struct CudaError : Inconclusive {
    CudaError(cudaError_t result, const char* call, std::source_location where);
    cudaError_t code;
};
void check(cudaError_t result, const char* call, std::source_location where = std::source_location::current());

struct DeviceTraits {
    std::string name;  ///< "NVIDIA H200"
    int compute_capability = 0;
    int multiprocessors = 0;
};
[[nodiscard]] int device_count();
[[nodiscard]] DeviceTraits device_traits(int device);
/// "0000:1b:00.0": identifies the GPU on its host, whatever its number in this process.
[[nodiscard]] std::string device_bus(int device);
/// 13000 as "13.0".
[[nodiscard]] std::string cuda_runtime_version();
[[nodiscard]] std::string cuda_driver_version();

/// A non-blocking stream of one device.
class Stream {
public:
    explicit Stream(int device);
    ~Stream();
    Stream(Stream&& other) noexcept;
    Stream& operator=(Stream&&) = delete;

    [[nodiscard]] cudaStream_t get() const { return stream_; }
    void synchronize() const;

private:
    cudaStream_t stream_ = nullptr;
};

class Event {
public:
    Event();
    ~Event();
    Event(Event&& other) noexcept;
    Event& operator=(Event&&) = delete;

    [[nodiscard]] cudaEvent_t get() const { return event_; }
    void record(cudaStream_t stream) const;
    /// Work enqueued on `stream` from now on waits for the recorded point.
    void hold(cudaStream_t stream) const;
    [[nodiscard]] static double milliseconds(const Event& from, const Event& to);

private:
    cudaEvent_t event_ = nullptr;
};

/// Device memory, filled with `poison` when allocated so that an unwritten result shows.
class DeviceBuffer {
public:
    static constexpr unsigned char poison = 0xa5;

    DeviceBuffer() = default;
    explicit DeviceBuffer(std::size_t bytes);
    ~DeviceBuffer();
    DeviceBuffer(DeviceBuffer&& other) noexcept;
    DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;

    [[nodiscard]] std::byte* data() const { return data_; }
    [[nodiscard]] std::size_t size() const { return size_; }
    void poison_all(cudaStream_t stream) const;
    /// Ensures at least so many bytes; a new allocation is poisoned.
    void reserve(std::size_t bytes);

private:
    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
};

/// A CUDA graph: work captured once and launched many times.
class Graph {
public:
    Graph(cudaStream_t stream, const std::function<void()>& work);
    ~Graph();
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;

    void launch(cudaStream_t stream) const;

private:
    cudaGraphExec_t executable_ = nullptr;
};

}  // namespace samesum::gpu
