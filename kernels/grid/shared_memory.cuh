/// Kernels whose blocks have shared memory: what they share stands in the type of their arguments,
/// from which the loader learns how much memory a block asks for.
#pragma once

#include "core/block.cuh"
#include "core/platform.cuh"

namespace dg {

/// Arguments of a kernel with blocks of `Threads`, each with a `Shared<Block>` in shared memory.
template <class Args, u32 Threads, template <class> class Shared>
struct Sharing : Args {};

#if DG_GPU

template <class Args>
constexpr u64 shared_nbytes(void (*)(Args)) {
  return 0;
}

template <class Args, u32 Threads, template <class> class Shared>
constexpr u64 shared_nbytes(void (*)(Sharing<Args, Threads, Shared>)) {
  return sizeof(Shared<Block<Threads>>);
}

/// A number as a name: NVRTC tells names of what it compiled, and nothing else that is constant.
template <u64 nbytes>
__device__ u8 named_number;

#endif

}  // namespace dg
