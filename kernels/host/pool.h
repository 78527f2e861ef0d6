/// The CPU's worker threads.
#pragma once

namespace dg {

/// Threads that a launch uses: set_threads, else DGPUHASH_NUM_THREADS, else the CPUs that the process
/// may use.
unsigned threads();

/// Takes effect for launches that begin later; those in progress keep their threads. 0: the default
/// again.
void set_threads(unsigned count);

}  // namespace dg
