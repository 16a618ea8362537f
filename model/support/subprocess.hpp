// Work in a child process: the only way to end a solver, or any program, when its time is up.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace samesum {

/// What became of a child.
struct ChildResult {
    std::optional<std::string> output;  ///< what it returned; nothing when it failed or was ended
    std::string why;                    ///< "no answer within 5 s", "ended by signal 11", or what it threw
    double seconds = 0;
};

/// A piece of work. The function runs in a fork of this process, so what it changes is not seen here; only the text it
/// returns comes back. At `limit` seconds (0: none) the child is killed, whatever it is doing, its own children too.
struct Job {
    std::string name;
    std::function<std::string()> work;
    double limit = 0;
};

/// Runs the jobs, `parallel` at a time; results are in the jobs' order. `finished(i, result)` hears of each as it ends.
/// Forks, so call it from a process with one thread.
std::vector<ChildResult> run_jobs(std::span<const Job> jobs, int parallel,
                                  const std::function<void(std::size_t, const ChildResult&)>& finished = {});

/// One job by itself.
[[nodiscard]] ChildResult run_in_child(const std::function<std::string()>& work, double limit);

/// A program with arguments (words[0] is its path); its output is what it wrote to stdout, stderr is dropped.
struct ProgramResult {
    std::optional<int> exit_code;  ///< nothing when it could not be started, was ended, or ran out of time
    std::string output;
    std::string why;
};
[[nodiscard]] ProgramResult run_executable(const std::vector<std::string>& words, double limit);

}  // namespace samesum
