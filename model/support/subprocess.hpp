// Work in a child process: the only way to stop a solver, or any program, at a time limit.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace samesum {

/// The outcome of a child process.
struct ChildResult {
    std::optional<std::string> output;  ///< what it returned; std::nullopt if it failed or was killed
    std::string why;  ///< "no answer within 5 s", "ended by signal 11", or the message of its exception
    double seconds = 0;
};

/// A function to run in a fork of this process: its side effects stay there; only the returned text comes back. At
/// `limit` seconds (0: none) the child and its own children are killed.
struct Job {
    std::string name;
    std::function<std::string()> work;
    double limit = 0;
};

/// Runs the jobs, `parallel` at a time; results are in the jobs' order. `finished(i, result)` is called
/// as each ends. Forks: call it only from a process with one thread.
std::vector<ChildResult> run_jobs(std::span<const Job> jobs, int parallel,
                                  const std::function<void(std::size_t, const ChildResult&)>& finished = {});

/// Runs a single job.
[[nodiscard]] ChildResult run_in_child(const std::function<std::string()>& work, double limit);

/// A program with arguments (words[0] is its path); its output is what it wrote to stdout, stderr is dropped.
struct ProgramResult {
    std::optional<int> exit_code;  ///< std::nullopt if it did not start, was killed, or timed out
    std::string output;
    std::string why;
};
[[nodiscard]] ProgramResult run_executable(const std::vector<std::string>& words, double limit);

}  // namespace samesum
