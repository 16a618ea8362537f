// CUDA's handles are created and freed only here.
// SPDX-License-Identifier: Apache-2.0
#include "impl/device/cuda.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace samesum::gpu {
namespace {

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

std::string short_name(const char* file) {
    const std::string path = file;
    const std::size_t slash = path.rfind('/');
    return slash == std::string::npos ? path : path.substr(slash + 1);
}

}  // namespace

CudaError::CudaError(cudaError_t result, const char* call, std::source_location where)
    : Inconclusive(
          fmt::format("{}: {} ({}:{})", call, cudaGetErrorString(result), short_name(where.file_name()), where.line())),
      code(result) {}

void check(cudaError_t result, const char* call, std::source_location where) {
    if (result != cudaSuccess) throw CudaError(result, call, where);
}

int device_count() {
    int count = 0;
    const cudaError_t result = cudaGetDeviceCount(&count);
    if (result == cudaErrorNoDevice || result == cudaErrorInsufficientDriver) return 0;
    check(result, "cudaGetDeviceCount");
    return count;
}

DeviceTraits device_traits(int device) {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    return {properties.name, properties.major * 10 + properties.minor, properties.multiProcessorCount};
}

std::string device_bus(int device) {
    std::array<char, 32> bus{};
    check(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), device), "cudaDeviceGetPCIBusId");
    return bus.data();
}

std::string cuda_runtime_version() {
    int version = 0;
    check(cudaRuntimeGetVersion(&version), "cudaRuntimeGetVersion");
    return version_text(version);
}

std::string cuda_driver_version() {
    int version = 0;
    check(cudaDriverGetVersion(&version), "cudaDriverGetVersion");
    return version_text(version);
}

Stream::Stream(int device) {
    check(cudaSetDevice(device), "cudaSetDevice");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
}

Stream::~Stream() {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

Stream::Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}

void Stream::synchronize() const { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

Event::Event() { check(cudaEventCreate(&event_), "cudaEventCreate"); }

Event::~Event() {
    if (event_ != nullptr) cudaEventDestroy(event_);
}

Event::Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}

void Event::record(cudaStream_t stream) const { check(cudaEventRecord(event_, stream), "cudaEventRecord"); }

void Event::hold(cudaStream_t stream) const { check(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent"); }

double Event::milliseconds(const Event& from, const Event& to) {
    float elapsed = 0;
    check(cudaEventElapsedTime(&elapsed, from.event_, to.event_), "cudaEventElapsedTime");
    return elapsed;
}

DeviceBuffer::DeviceBuffer(std::size_t bytes) : size_(bytes) {
    if (bytes == 0) return;
    void* fresh = nullptr;
    check(cudaMalloc(&fresh, bytes), "cudaMalloc");
    data_ = static_cast<std::byte*>(fresh);
    check(cudaMemset(data_, poison, bytes), "cudaMemset");
    // The poison is written before any other stream's work.
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

DeviceBuffer::~DeviceBuffer() { cudaFree(data_); }

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
}

void DeviceBuffer::poison_all(cudaStream_t stream) const {
    if (size_ > 0) check(cudaMemsetAsync(data_, poison, size_, stream), "cudaMemsetAsync");
}

void DeviceBuffer::reserve(std::size_t bytes) {
    if (bytes <= size_) return;
    *this = DeviceBuffer();  // freed before the new allocation
    *this = DeviceBuffer(bytes);
}

Graph::Graph(cudaStream_t stream, const std::function<void()>& work) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    cudaGraph_t graph = nullptr;
    try {
        work();
    } catch (...) {
        cudaStreamEndCapture(stream, &graph);
        if (graph != nullptr) cudaGraphDestroy(graph);
        throw;
    }
    check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    const cudaError_t result = cudaGraphInstantiate(&executable_, graph, 0);
    cudaGraphDestroy(graph);
    check(result, "cudaGraphInstantiate");
}

Graph::~Graph() {
    if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
}

void Graph::launch(cudaStream_t stream) const { check(cudaGraphLaunch(executable_, stream), "cudaGraphLaunch"); }

}  // namespace samesum::gpu
